//! TLS of the client: the files of its configuration, HTTP/2 by ALPN.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base_tls::{ClientTls, Followed, TlsError};
use rustls::ClientConfig;

use crate::config::{Config, Identity, Source};
use crate::error::{Error, Result};
use crate::kubeconfig::read_sources;

const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Certificates and key of new connections.
pub(crate) struct ConnectionTls {
    content: ClientTls,
    pub(crate) config: Arc<ClientConfig>,
}

impl ConnectionTls {
    /// Returns whether both have the same certificates, key and CAs.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.content == other.content
    }

    /// Returns the client's certificate chain in PEM.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        let (chain, _) = self.content.identity.as_ref()?;
        Some(chain)
    }
}

/// The certificate files of a configuration, and the kubeconfig that embeds certificates. They are
/// read again after a change.
pub(crate) struct ClientTlsFiles {
    config: Arc<Config>,
    /// Unset until the first successful read.
    followed: OnceLock<Followed<ConnectionTls>>,
    check_every: Option<Duration>,
}

impl ClientTlsFiles {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            followed: OnceLock::new(),
            check_every: None,
        }
    }

    /// Replaces the interval at which [`Followed`] checks the files.
    #[cfg(test)]
    pub(crate) fn check_every(self, interval: Duration) -> Self {
        Self {
            check_every: Some(interval),
            ..self
        }
    }

    /// Returns the content of the files as it was at most a second ago; `None` before
    /// [`Self::read_files`] succeeded.
    pub(crate) fn current(&self) -> Option<Arc<ConnectionTls>> {
        self.followed.get().map(Followed::current)
    }

    /// Returns the content of the files as it is now. If it can't be used, the former one remains
    /// in use.
    ///
    /// # Errors
    /// A file can't be used, and there is no former content.
    pub(crate) fn read_files(&self) -> Result<Arc<ConnectionTls>> {
        if let Some(followed) = self.followed.get() {
            return Ok(followed.refresh());
        }
        let config = self.config.clone();
        let load = move |_: &[PathBuf]| load_connection_tls(&config);
        let followed = Followed::load(self.config.list_credential_files(), load)
            .map_err(|error| Error::Config(describe_error(&error)))?;
        let followed = match self.check_every {
            Some(interval) => followed.check_every(interval),
            None => followed,
        };
        // If another task was faster, its value is used: both have read the same files.
        Ok(self.followed.get_or_init(|| followed).current())
    }
}

/// Builds the rustls configuration from the current content of the files.
fn load_connection_tls(config: &Config) -> Result<ConnectionTls, TlsError> {
    let (ca, identity) = read_sources(config)?;
    let content = ClientTls {
        ca: match config.insecure {
            true => None,
            false => Some(read_roots(ca)?),
        },
        identity: identity.as_ref().map(read_identity).transpose()?,
        insecure: config.insecure,
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    let config = base_tls::client_config(&content)?;
    Ok(ConnectionTls { content, config })
}

fn read_identity(identity: &Identity) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let chain = read_source(&identity.certificate)?;
    let key = read_source(&identity.key)?;
    // Parsed here as well, for an error that names the file.
    base_tls::parse_certificates(&chain, &source_path(&identity.certificate))?;
    base_tls::parse_private_key(&key, &source_path(&identity.key))?;
    Ok((chain, key))
}

/// Reads the certificate authorities, at least one.
fn read_roots(source: Option<Source>) -> Result<Vec<u8>, TlsError> {
    let source = source.unwrap_or_else(|| Source::File(SYSTEM_ROOTS.into()));
    let (pem, path) = (read_source(&source)?, source_path(&source));
    // An empty store would reject every server, with a message about its certificate instead of
    // this file.
    if base_tls::parse_roots(&pem, &path)?.is_empty() {
        let what = "certificate authority";
        return Err(TlsError::Empty { path, what });
    }
    Ok(pem)
}

fn read_source(source: &Source) -> Result<Vec<u8>, TlsError> {
    match source {
        Source::Inline(bytes) => Ok(bytes.clone()),
        Source::File(path) => base_tls::read_file(path),
    }
}

/// Returns the path for errors.
fn source_path(source: &Source) -> PathBuf {
    match source {
        Source::Inline(_) => "the inline data".into(),
        Source::File(path) => path.clone(),
    }
}

fn describe_error(error: &TlsError) -> String {
    match error {
        TlsError::Read { path, source } => format!("cannot read {}: {source}", path.display()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_file_without_certificates() {
        let inline =
            Config::builder("https://127.0.0.1:1").with_ca(Source::Inline(b"nothing".to_vec()));
        let missing =
            Config::builder("https://127.0.0.1:1").with_ca(Source::File("/no/such/ca.crt".into()));
        for (config, want) in [
            (inline, "the inline data holds no certificate"),
            (missing, "cannot read /no/such/ca.crt: No such file"),
        ] {
            let files = ClientTlsFiles::new(Arc::new(config));
            let error = files.read_files().map(drop).map_err(|e| e.to_string());
            assert!(
                error.as_ref().is_err_and(|error| error.contains(want)),
                "{error:?}"
            );
        }
    }
}
