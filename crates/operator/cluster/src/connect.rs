//! The administrator's connections to a cluster of this machine: to its API servers and its store.

use std::path::Path;
use std::time::Duration;

use client::{Client, Config, Source};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::settings::Settings;

/// The name of this program in requests.
pub(crate) const USER_AGENT: &str = "ironclad";

/// Returns a client with the administrator's rights. On a machine with a shared control plane it
/// uses the proxy of the machine: the kubeconfig, which is for people, may name a load balancer
/// that is not there yet.
pub fn connect_admin(settings: &Settings, layout: &Layout) -> Result<Client> {
    if settings.control_plane.is_some() {
        return Ok(connect_admin_at(&settings.server_url(), layout));
    }
    let path = layout.admin_kubeconfig();
    let config = Config::from_kubeconfig(&path).map_err(|cause| Error::Api {
        what: path.display().to_string(),
        cause,
    })?;
    Ok(Client::new(config.user_agent(USER_AGENT)))
}

/// Returns a client of one API server with the administrator's certificate.
pub fn connect_admin_at(server: &str, layout: &Layout) -> Client {
    Client::new(configure_admin_at(server, layout))
}

/// Returns the configuration of a client with the administrator's certificate.
pub fn configure_admin_at(server: &str, layout: &Layout) -> Config {
    let file = |name: &str| Source::File(layout.pki().join(name));
    Config::builder(server)
        .with_ca(file("ca.crt"))
        .with_identity(file("admin.crt"), file("admin.key"))
        .user_agent(USER_AGENT)
}

/// Returns the URL of the API server on this machine.
pub fn local_api_url(settings: &Settings) -> String {
    format!("https://127.0.0.1:{}", settings.ports.api)
}

/// Returns the URL of the store's member on this machine.
pub fn local_store_url(settings: &Settings) -> String {
    format!("https://127.0.0.1:{}", settings.ports.store)
}

/// The CA of the store, and certificate and key of its clients on this machine.
const STORE_FILES: [&str; 3] = [
    "etcd/ca.crt",
    "apiserver-etcd-client.crt",
    "apiserver-etcd-client.key",
];

/// Returns whether this machine can connect to the store.
pub fn has_store_certificate(layout: &Layout) -> bool {
    let is_present = |name| layout.pki().join(name).is_file();
    STORE_FILES.into_iter().all(is_present)
}

/// Returns a connection to a member of the store, with the certificate of the API server.
pub fn connect_store(url: &str, layout: &Layout) -> Result<Channel> {
    let [ca, certificate, key] = STORE_FILES.map(|name| read_file(&layout.pki().join(name)));
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca?))
        .identity(Identity::from_pem(certificate?, key?));
    let endpoint =
        Endpoint::from_shared(url.to_owned()).and_then(|endpoint| endpoint.tls_config(tls));
    let endpoint = endpoint.map_err(|error| Error::Refused(error.to_string()))?;
    Ok(endpoint
        // Less than the 7 s of a request, so that the error says why the connection fails.
        .connect_timeout(Duration::from_secs(5))
        // A request without a deadline, such as that of a snapshot, ends if the member is lost.
        .http2_keep_alive_interval(Duration::from_secs(10))
        // A member that is down is an error of each request, which callers retry or ignore.
        .connect_lazy())
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn commands_do_not_depend_on_the_load_balancer_of_people() {
        let mut settings = Settings::example_shared();
        settings.control_plane.as_mut().unwrap().endpoint = Some("api.example.com:6443".into());
        let layout = Layout::new(Path::new("/nonexistent"), false);
        let client = connect_admin(&settings, &layout).unwrap();
        assert_eq!(client.config().server, "https://127.0.0.1:6444");
    }
}
