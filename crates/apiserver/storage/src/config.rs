//! Addresses and credentials of the store.

use crate::connector::{
    ClientCertificateFiles, StoreTls, build_plain_channel, build_tls_channel, load_tls,
};
use base_tls::Followed;
use base_tls::rustls::ClientConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// `--etcd-*`.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// `http://` or `https://` URLs of the members.
    pub servers: Vec<String>,
    /// CA of the members' certificates.
    pub ca_file: Option<PathBuf>,
    /// Client certificate.
    pub cert_file: Option<PathBuf>,
    /// Key of the client certificate.
    pub key_file: Option<PathBuf>,
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No member is given.
    #[error("--etcd-servers must name at least one member")]
    NoServers,
    /// Not a URL.
    #[error(
        "--etcd-servers: {url:?} is not a URL of the form http://HOST:PORT or https://HOST:PORT"
    )]
    BadUrl {
        /// The given text.
        url: String,
    },
    /// A file that can't be read, or without a certificate or key.
    #[error("the store's TLS files can't be used: {0}")]
    Pem(#[from] base_tls::TlsError),
    /// Only one of certificate and key is given.
    #[error("--etcd-certfile and --etcd-keyfile belong together: give both or none")]
    HalfPair,
}

impl StoreConfig {
    /// Reads the TLS files.
    pub(crate) fn load_tls(&self) -> Result<Followed<Arc<ClientConfig>>, ConfigError> {
        let pair = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some(ClientCertificateFiles {
                certificate: cert.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            _ => return Err(ConfigError::HalfPair),
        };
        Ok(load_tls(self.ca_file.clone(), pair)?)
    }

    /// Creates a channel for each member. They connect on first use, and again as needed.
    pub(crate) fn connect_members(
        &self,
        tls: &StoreTls,
    ) -> Result<Vec<(String, Channel)>, ConfigError> {
        if self.servers.is_empty() {
            return Err(ConfigError::NoServers);
        }
        self.servers
            .iter()
            .map(|url| Ok((url.clone(), build_channel(url, tls)?)))
            .collect()
    }
}

/// Creates a channel to one member.
pub(crate) fn build_channel(url: &str, tls: &StoreTls) -> Result<Channel, ConfigError> {
    let bad = || ConfigError::BadUrl {
        url: url.to_owned(),
    };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| bad())?;
    match endpoint.uri().scheme_str() {
        Some("https") => build_tls_channel(endpoint.uri(), tls, set_timeouts).ok_or_else(bad),
        Some("http") => build_plain_channel(endpoint.uri(), set_timeouts).ok_or_else(bad),
        _ => Err(bad()),
    }
}

fn set_timeouts(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(Duration::from_secs(3))
        // Without keep-alive, a member that lost power is noticed only when the kernel gives up,
        // after minutes.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
}
