//! Address, port and certificate of a component's own server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use base_serve::ListenError;
use base_task::Tasks;
use base_tls::rustls::ServerConfig;
use base_tls::{ClientAuth, Offer, ServerTls, TlsError};
use clap::Args;

use crate::endpoints::Endpoints;

/// Flags of the server of health and metrics. A component sets its own default of `secure_port`.
#[derive(Clone, Debug, Args)]
pub struct ServingFlags {
    /// Address to serve health and metrics on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve health and metrics on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub secure_port: u16,
    /// Write the bound port to this file
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Serving certificate; self-signed if absent
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Oldest version of TLS to offer: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub tls_min_version: String,
    /// Cipher suites to offer for TLS 1.2, by Go's names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
}

/// HTTP versions that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersions {
    /// HTTP/2 and HTTP/1.1.
    All,
    /// HTTP/1.1 only.
    OnlyHttp1,
}

/// Reasons why a component can't serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port can't be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The bound address is unknown.
    #[error("the bound port can't be read")]
    Address(#[source] std::io::Error),
    /// The port file can't be written.
    #[error("can't write {path}")]
    PortFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A flag or file of TLS can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl ServingFlags {
    /// Serves in the background until the tasks' shutdown.
    ///
    /// # Errors
    /// The port, the port file or the certificate can't be used.
    pub async fn start_server(
        &self,
        endpoints: Endpoints,
        versions: HttpVersions,
        tasks: &Tasks,
    ) -> Result<(), ServeError> {
        let address = SocketAddr::new(self.bind_address, self.secure_port);
        let listener = base_serve::bind_listener(address).await?;
        // Port 0 picks a free one, so the file is written after the port is bound.
        let port = listener.local_addr().map_err(ServeError::Address)?.port();
        if let Some(path) = &self.port_file {
            base_serve::write_port_file(path, port).map_err(|source| ServeError::PortFile {
                path: path.clone(),
                source,
            })?;
        }
        let options = base_serve::Options {
            tls: Some(self.tls_config(versions)?),
            ..base_serve::Options::default()
        };
        tracing::info!(port, "serving health and metrics");
        endpoints.serve_pages("health", listener, options, tasks);
        Ok(())
    }

    fn tls_config(&self, versions: HttpVersions) -> Result<Arc<ServerConfig>, TlsError> {
        let offer = Offer::from_names(&self.tls_min_version, &self.tls_cipher_suites)?;
        // Order is preference; HTTP/1.1 is always offered, for scrapers without HTTP/2.
        let http2 = (versions == HttpVersions::All).then(|| b"h2".to_vec());
        let alpn = http2.into_iter().chain([b"http/1.1".to_vec()]).collect();
        let Some((certificate, key)) = self
            .tls_cert_file
            .clone()
            .zip(self.tls_private_key_file.clone())
        else {
            // In memory only, and newly made for each start: no client verifies it.
            let names = ["localhost", "127.0.0.1"].map(str::to_owned);
            let names = names.into_iter().chain([self.bind_address.to_string()]);
            return base_tls::self_signed_config(names.collect(), alpn, &offer);
        };
        let files = ServerTls {
            certificate,
            key,
            client_auth: ClientAuth::None,
            alpn,
        };
        base_tls::server_config_with(&files, &offer)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use base_task::CancellationToken;
    use base_tls::rustls::CipherSuite;
    use base_tls::rustls::version::{TLS12, TLS13};
    use base_tls::testing::negotiate;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(mut_arg("secure_port", |arg| arg.default_value("10259")))]
    struct Flags {
        #[command(flatten)]
        serving: ServingFlags,
    }

    /// Serves with these flags and returns the address.
    async fn start(flags: &[&str], tasks: &Tasks) -> anyhow::Result<SocketAddr> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("port");
        let own = ["x", "--bind-address=127.0.0.1", "--secure-port=0"];
        let words = own.iter().chain(flags);
        let serving = ServingFlags {
            port_file: Some(file.clone()),
            ..Flags::try_parse_from(words)?.serving
        };
        serving
            .start_server(Endpoints::new(), HttpVersions::All, tasks)
            .await?;
        let port = std::fs::read_to_string(file)?.trim().parse()?;
        Ok(SocketAddr::new(serving.bind_address, port))
    }

    #[test]
    fn default_of_the_port_is_the_component_s() {
        let flags = Flags::try_parse_from(["x"]).unwrap();
        assert_eq!(flags.serving.secure_port, 10259);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn versions_and_suites_of_the_flags_are_offered_and_no_others() {
        const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        const AES_256: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
        let tasks = Tasks::new(CancellationToken::new());
        let shake = async |address, version, suite| {
            tokio::task::spawn_blocking(move || negotiate(address, version, suite))
                .await
                .unwrap()
        };
        let newest = start(&["--tls-min-version=VersionTLS13"], &tasks)
            .await
            .unwrap();
        assert!(
            shake(newest, &TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256)
                .await
                .is_ok()
        );
        assert!(shake(newest, &TLS12, AES_128).await.is_err());
        let flag = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
        let listed = start(&[flag], &tasks).await.unwrap();
        assert!(shake(listed, &TLS12, AES_256).await.is_ok());
        assert!(shake(listed, &TLS12, AES_128).await.is_err());
        assert!(
            start(&["--tls-cipher-suites=TLS_NULL"], &tasks)
                .await
                .is_err()
        );
    }
}
