//! Connections to kubelets and pods.

pub mod reach;

use api_meta::{ApiError, meta};
use base_tls::{ClientTls, Followed, TlsError, client_config};
use http::HeaderMap;
use reach::{Loopback, ReachPolicy};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

// Streams have no request timeout, so that an unreachable node would hold them until TCP gives up.
const CONNECT: Duration = Duration::from_secs(5);

/// `--kubelet-*`.
#[derive(Clone, Debug, Default)]
pub struct KubeletTls {
    /// `--kubelet-client-certificate`
    pub certificate: Option<PathBuf>,
    /// `--kubelet-client-key`
    pub key: Option<PathBuf>,
    /// `--kubelet-certificate-authority`; without it certificates are not verified, as upstream.
    pub ca: Option<PathBuf>,
    /// `--kubelet-preferred-address-types`
    pub address_types: Vec<String>,
}

/// Connects to backends.
pub struct Kubelets {
    kubelet: Followed<KubeletClients>,
    any: Arc<ClientConfig>,
    address_types: Vec<String>,
    reach: ReachPolicy,
}

/// The configurations of connections to kubelets, with one client certificate.
struct KubeletClients {
    verified: Arc<ClientConfig>,
    unverified: Arc<ClientConfig>,
}

/// The destination of a request.
pub struct Target {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// TLS; `None` is plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// Path and query.
    pub path: String,
    /// Addresses that are not allowed.
    pub reach: ReachPolicy,
    /// Permission for `host` to be on loopback.
    pub loopback: Loopback,
    /// Set if the destination is an extension server.
    pub extension: Option<Extension>,
}

/// The further needs of an extension server.
pub struct Extension {
    /// Name in the server's certificate, which is not resolved.
    pub server_name: String,
    /// Headers with the user.
    pub identity: HeaderMap,
}

/// Reasons why a connection fails to open.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host is, or resolves to, an address to which no request may be forwarded.
    #[error("address not allowed")]
    NotAllowed,
    /// Network or TLS error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A byte stream to a backend.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Target {
    /// Returns `host:port`.
    pub fn address(&self) -> String {
        join_host_port(&self.host, u64::from(self.port))
    }
}

impl Kubelets {
    /// Loads the files of `tls` and reloads them when they change.
    ///
    /// # Errors
    /// A file that can't be read or used.
    pub fn new(tls: &KubeletTls, reach: ReachPolicy) -> anyhow::Result<Self> {
        let pair = tls.certificate.iter().chain(&tls.key);
        let paths = tls.ca.iter().chain(pair).cloned().collect();
        let tls = tls.clone();
        let address_types = tls.address_types.clone();
        Ok(Kubelets {
            kubelet: Followed::load(paths, move |_| load_clients(&tls))?,
            // Backends of a proxy request have certificates of any CA, and get no client
            // certificate.
            any: client_config(&ClientTls {
                insecure: true,
                ..ClientTls::default()
            })?,
            address_types,
            reach,
        })
    }

    /// Returns the kubelet of a node, for paths that this server builds.
    pub fn kubelet_target(&self, node: &Value, path: String) -> Result<Target, ApiError> {
        let host = self.preferred_address(node).ok_or_else(|| {
            ApiError::internal(format!(
                "no preferred addresses found; known addresses: {}",
                node["status"]["addresses"]
            ))
        })?;
        Ok(Target {
            host: host.to_owned(),
            port: kubelet_port(node),
            // Read at each request: client certificates are rotated while the server runs.
            tls: Some(self.kubelet.current().verified.clone()),
            path,
            reach: self.reach.clone(),
            loopback: Loopback::Allowed,
            extension: None,
        })
    }

    /// Returns the kubelet of a node without verification of its certificate, as a client may
    /// request for a log. It gets the client certificate, as upstream.
    pub fn unverified_kubelet_target(
        &self,
        node: &Value,
        path: String,
    ) -> Result<Target, ApiError> {
        Ok(Target {
            tls: Some(self.kubelet.current().unverified.clone()),
            ..self.kubelet_target(node, path)?
        })
    }

    /// Returns a destination that a client names by path, over HTTP, or over HTTPS without
    /// verification (there is no CA for it).
    pub fn unverified_target(&self, https: bool, host: &str, port: u16, path: String) -> Target {
        // Never the kubelet's configuration: an arbitrary backend must not see this server's client
        // certificate.
        let tls = https.then(|| self.any.clone());
        Target {
            host: host.to_owned(),
            port,
            tls,
            path,
            reach: self.reach.clone(),
            loopback: Loopback::Refused,
            extension: None,
        }
    }

    /// Returns an extension server as destination.
    pub fn extension_target(
        &self,
        host: &str,
        port: u16,
        path: String,
        tls: Arc<ClientConfig>,
        extension: Extension,
    ) -> Target {
        Target {
            tls: Some(tls),
            extension: Some(extension),
            ..self.unverified_target(false, host, port, path)
        }
    }

    fn preferred_address<'a>(&self, node: &'a Value) -> Option<&'a str> {
        let addresses = node.pointer("/status/addresses")?.as_array()?;
        let of_type = |ty: &String| addresses.iter().find(|a| meta::str_at(a, &["type"]) == ty);
        self.address_types
            .iter()
            .find_map(of_type)?
            .get("address")?
            .as_str()
    }
}

/// Returns the port of a node's kubelet.
fn kubelet_port(node: &Value) -> u16 {
    let port = node
        .pointer("/status/daemonEndpoints/kubeletEndpoint/Port")
        .and_then(Value::as_u64);
    port.and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
        // The kubelet's default port, for a node whose status has none yet.
        .unwrap_or(10250)
}

fn load_clients(tls: &KubeletTls) -> Result<KubeletClients, TlsError> {
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            Some((base_tls::read_file(certificate)?, base_tls::read_file(key)?))
        }
        _ => None,
    };
    let ca = tls
        .ca
        .as_ref()
        .map(|path| base_tls::read_file(path))
        .transpose()?;
    // As upstream: without --kubelet-certificate-authority the kubelet is not verified.
    let insecure = ca.is_none();
    let configure = |ca, insecure| {
        client_config(&ClientTls {
            ca,
            identity: identity.clone(),
            insecure,
            // Without ALPN the kubelet speaks HTTP/1.1, the version whose Upgrade the streams need.
            alpn: Vec::new(),
        })
    };
    Ok(KubeletClients {
        verified: configure(ca, insecure)?,
        unverified: configure(None, true)?,
    })
}

/// Returns `host:port`, with IPv6 in brackets.
pub fn join_host_port(host: &str, port: u64) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Opens a connection, if the address is allowed.
pub async fn open_connection(target: &Target) -> Result<Box<dyn Io>, ConnectError> {
    let connecting = async {
        // Resolved once: a second lookup could return an address that was not checked (DNS
        // rebinding).
        let stream = connect_any(&resolve_target(target).await?).await?;
        // Interactive streams send single keystrokes.
        stream.set_nodelay(true)?;
        let Some(tls) = &target.tls else {
            return Ok(Box::new(stream) as Box<dyn Io>);
        };
        let extension = target.extension.as_ref();
        let name = extension.map_or(&target.host, |extension| &extension.server_name);
        let name = ServerName::try_from(name.clone()).map_err(std::io::Error::other)?;
        let stream = TlsConnector::from(tls.clone())
            .connect(name, stream)
            .await?;
        Ok(Box::new(stream) as Box<dyn Io>)
    };
    let timed_out = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(CONNECT, connecting)
        .await
        .unwrap_or_else(timed_out)
}

/// Resolves the target; one address that is not allowed rejects all.
async fn resolve_target(target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((target.host.as_str(), target.port))
        .await?
        .collect();
    let allowed = found
        .iter()
        .all(|address| target.reach.allows_address(*address, target.loopback));
    if allowed {
        Ok(found)
    } else {
        Err(ConnectError::NotAllowed)
    }
}

/// Connects to the first address that accepts.
async fn connect_any(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in addresses {
        // A name may resolve to an address family that this machine has no route to.
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio_rustls::TlsAcceptor;

    /// Starts a kubelet whose certificate no CA has issued; returns its Node and its task.
    async fn start_unknown_kubelet() -> (Value, JoinSet<()>) {
        let names = vec!["127.0.0.1".to_owned()];
        let config = base_tls::self_signed_config(names, Vec::new(), &Default::default());
        let acceptor = TlsAcceptor::from(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = acceptor.accept(stream).await;
            }
        });
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        (node, tasks)
    }

    #[tokio::test]
    async fn unknown_kubelet_is_reached_without_verification_only() {
        let (node, _tasks) = start_unknown_kubelet().await;
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.crt");
        let params = || rcgen::CertificateParams::new(vec!["ca".to_owned()]);
        let (certificate, _) = base_tls::create_self_signed_pair(params).unwrap();
        std::fs::write(&ca, certificate).unwrap();
        let tls = KubeletTls {
            ca: Some(ca),
            address_types: vec!["InternalIP".to_owned()],
            ..KubeletTls::default()
        };
        let kubelets = Kubelets::new(&tls, ReachPolicy::new(0, &[])).unwrap();
        let path = || "/containerLogs/d/p/c".to_owned();
        let verified = kubelets.kubelet_target(&node, path()).unwrap();
        assert!(open_connection(&verified).await.is_err());
        let unverified = kubelets.unverified_kubelet_target(&node, path()).unwrap();
        assert!(open_connection(&unverified).await.is_ok());
    }
}
