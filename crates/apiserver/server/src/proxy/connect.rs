//! Connections to kubelets and pods.

use api_meta::{ApiError, meta};
use base_tls::{ClientTls, TlsError, client_config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const CONNECT: Duration = Duration::from_secs(5);

/// `--kubelet-*`.
#[derive(Clone, Debug, Default)]
pub struct KubeletTls {
    /// `--kubelet-client-certificate`
    pub certificate: Option<PathBuf>,
    /// `--kubelet-client-key`
    pub key: Option<PathBuf>,
    /// `--kubelet-certificate-authority`; none does not verify, as upstream.
    pub ca: Option<PathBuf>,
    /// `--kubelet-preferred-address-types`
    pub address_types: Vec<String>,
}

/// How kubelets are reached.
pub struct Kubelets {
    kubelet: Arc<ClientConfig>,
    any: Arc<ClientConfig>,
    address_types: Vec<String>,
}

/// Where a request goes.
pub struct Target {
    /// Host and port.
    pub address: String,
    /// TLS; `None` is plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    /// Path and query.
    pub path: String,
}

/// A byte stream to a backend.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

impl Kubelets {
    /// Reads the files of `tls`.
    ///
    /// # Errors
    /// A file that can't be read or used.
    pub fn new(tls: &KubeletTls) -> anyhow::Result<Self> {
        let read =
            |path: &PathBuf| std::fs::read(path).map_err(|e| anyhow::anyhow!("can't read {}: {e}", path.display()));
        let identity = match (&tls.certificate, &tls.key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        let ca = tls.ca.as_ref().map(read).transpose()?;
        let insecure = ca.is_none();
        let config = |tls: &ClientTls| -> Result<Arc<ClientConfig>, TlsError> { client_config(tls) };
        Ok(Kubelets {
            kubelet: config(&ClientTls { ca, identity, insecure, alpn: Vec::new() })?,
            any: config(&ClientTls { insecure: true, ..ClientTls::default() })?,
            address_types: tls.address_types.clone(),
        })
    }

    /// The kubelet of a node.
    pub fn of(&self, node: &Value, path: String) -> Result<Target, ApiError> {
        let host = self.host(node).ok_or_else(|| {
            ApiError::internal(format!(
                "no preferred addresses found; known addresses: {}",
                node["status"]["addresses"]
            ))
        })?;
        let port =
            node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64).unwrap_or(10250);
        Ok(Target { address: joined(host, port), tls: Some(self.kubelet.clone()), path })
    }

    /// Something else over HTTPS whose certificate nobody can judge.
    pub fn unverified(&self) -> Arc<ClientConfig> {
        self.any.clone()
    }

    fn host<'a>(&self, node: &'a Value) -> Option<&'a str> {
        let addresses = node.pointer("/status/addresses")?.as_array()?;
        let of_type = |ty: &String| addresses.iter().find(|a| meta::str_at(a, &["type"]) == ty);
        self.address_types.iter().find_map(of_type)?.get("address")?.as_str()
    }
}

/// `host:port`, IPv6 in brackets.
pub fn joined(host: &str, port: u64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Opens a connection.
pub async fn open(target: &Target) -> std::io::Result<Box<dyn Io>> {
    let connecting = async {
        let stream = TcpStream::connect(&target.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &target.tls else { return Ok(Box::new(stream) as Box<dyn Io>) };
        let host = target.address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
        Ok(Box::new(stream) as Box<dyn Io>)
    };
    tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}
