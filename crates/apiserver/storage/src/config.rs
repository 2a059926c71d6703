//! Addresses and credentials of the store.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

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
    /// A file that can't be read.
    #[error("can't read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file without a certificate or key.
    #[error("the store's TLS files can't be used: {0}")]
    Pem(#[from] base_tls::TlsError),
    /// Only one of certificate and key is given.
    #[error("--etcd-certfile and --etcd-keyfile belong together: give both or none")]
    HalfPair,
    /// The TLS configuration is rejected.
    #[error("the store's TLS files can't be used: {0}")]
    Tls(tonic::transport::Error),
}

impl StoreConfig {
    /// Creates a channel for each member. They connect on first use, and again as needed.
    pub(crate) fn build_channels(&self) -> Result<Vec<(String, Channel)>, ConfigError> {
        let tls = self.build_tls()?;
        let endpoints = self
            .servers
            .iter()
            .map(|url| build_endpoint(url, tls.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        match endpoints.is_empty() {
            true => Err(ConfigError::NoServers),
            false => {
                let channels = endpoints.iter().map(Endpoint::connect_lazy);
                Ok(self.servers.iter().cloned().zip(channels).collect())
            }
        }
    }

    fn build_tls(&self) -> Result<ClientTlsConfig, ConfigError> {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &self.ca_file {
            let pem = read_file(ca)?;
            base_tls::parse_certificates(&pem, ca)?;
            tls = tls.ca_certificate(Certificate::from_pem(pem));
        }
        match (&self.cert_file, &self.key_file) {
            (Some(cert_file), Some(key_file)) => {
                let (cert, key) = (read_file(cert_file)?, read_file(key_file)?);
                base_tls::parse_certificates(&cert, cert_file)?;
                base_tls::parse_private_key(&key, key_file)?;
                tls = tls.identity(Identity::from_pem(cert, key));
            }
            (None, None) => {}
            _ => return Err(ConfigError::HalfPair),
        }
        Ok(tls)
    }
}

fn build_endpoint(url: &str, tls: ClientTlsConfig) -> Result<Endpoint, ConfigError> {
    let bad = || ConfigError::BadUrl {
        url: url.to_owned(),
    };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| bad())?;
    let endpoint = match endpoint.uri().scheme_str() {
        Some("https") => endpoint.tls_config(tls).map_err(ConfigError::Tls)?,
        Some("http") => endpoint,
        _ => return Err(bad()),
    };
    Ok(endpoint
        .connect_timeout(Duration::from_secs(3))
        // Without keep-alive, a member that lost power is noticed only when the kernel gives up,
        // after minutes.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10))
        .tcp_nodelay(true))
}

fn read_file(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::File {
        path: path.to_owned(),
        source,
    })
}
