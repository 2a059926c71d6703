//! Address and credentials for an API server.
//!
//! Rotation needs no restart: certificates in files or embedded in a kubeconfig are read again
//! after a change, tokens in files after one minute. Everything else in a kubeconfig, also a token,
//! is read once; if it changes, the client logs that it needs a restart.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::servers::check_servers;

/// Bytes that are given inline or read from a file when they are needed.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// The bytes.
    Inline(Vec<u8>),
    /// The file.
    File(PathBuf),
}

impl Source {
    /// Returns the bytes, reading the file if there is one.
    pub fn read_bytes(&self) -> Result<Vec<u8>> {
        match self {
            Self::Inline(bytes) => Ok(bytes.clone()),
            Self::File(path) => std::fs::read(path)
                .map_err(|error| Error::Config(format!("cannot read {}: {error}", path.display()))),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The bytes may be a token or a private key.
            Self::Inline(_) => f.debug_tuple("Inline").finish_non_exhaustive(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Source {
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }

    fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Inline(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

/// A client certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Certificate chain.
    pub certificate: Source,
    /// Private key.
    pub key: Source,
}

impl Identity {
    pub(crate) fn is_inline(&self) -> bool {
        self.certificate.is_inline() && self.key.is_inline()
    }
}

/// A context of a kubeconfig file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigFile {
    /// The file.
    pub path: PathBuf,
    /// Name of the context; `None` for the current one.
    pub context: Option<String>,
    /// Content that is read once.
    pub(crate) fixed: FixedContent,
}

/// Content of a kubeconfig that is read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedContent {
    pub(crate) server: String,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) insecure: bool,
    pub(crate) token: Option<Source>,
    pub(crate) impersonate: Option<String>,
    /// Paths of the CA, the client certificate and its key.
    pub(crate) files: Vec<PathBuf>,
}

impl FixedContent {
    /// Returns the content of a kubeconfig from which `config` has just been loaded.
    pub(crate) fn from_loaded(config: &Config) -> Self {
        Self {
            server: config.server.clone(),
            tls_server_name: config.tls_server_name.clone(),
            insecure: config.insecure,
            token: config.token.clone(),
            impersonate: config.impersonate.clone(),
            files: config.list_certificate_files(),
        }
    }
}

/// Configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `https://host:port`, or `http://` for tests.
    pub server: String,
    /// URLs of all API servers of the cluster, for clients that fail over. Without
    /// [`Self::server`] among them they are not used: a caller has replaced it.
    pub servers: Vec<String>,
    /// Trusted certificates in PEM; `None`: those of the system.
    pub ca: Option<Source>,
    /// Client certificate.
    pub identity: Option<Identity>,
    /// Bearer token.
    pub token: Option<Source>,
    /// Name to verify in the server's certificate instead of the host.
    pub tls_server_name: Option<String>,
    /// Accepts any certificate of the server.
    pub insecure: bool,
    /// The kubeconfig from which this was loaded. An inline CA and an inline client certificate are
    /// read from it again, so set others by [`Self::with_ca`] and [`Self::with_identity`].
    pub kubeconfig: Option<KubeconfigFile>,
    /// User to impersonate.
    pub impersonate: Option<String>,
    /// Namespace of the context.
    pub namespace: String,
    /// Value of `User-Agent`.
    pub user_agent: String,
    /// Timeout of a request other than a watch or a log stream.
    pub timeout: Duration,
}

impl Config {
    /// Creates a configuration without credentials.
    pub fn builder(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            servers: Vec::new(),
            ca: None,
            identity: None,
            token: None,
            tls_server_name: None,
            insecure: false,
            kubeconfig: None,
            impersonate: None,
            namespace: "default".to_owned(),
            user_agent: format!("ironclad/{}", env!("CARGO_PKG_VERSION")),
            timeout: Duration::from_secs(60),
        }
    }

    /// Connects to one of these API servers of the same cluster if the server can't be reached.
    ///
    /// # Errors
    /// One is no URL, or has another scheme than the server, or there are more than
    /// [`MAX_SERVERS`](crate::MAX_SERVERS).
    pub fn with_further_servers(mut self, further: Vec<String>) -> Result<Self> {
        self.set_further_servers(further).map_err(Error::Config)?;
        Ok(self)
    }

    pub(crate) fn set_further_servers(&mut self, further: Vec<String>) -> Result<(), String> {
        check_servers(&self.server, &further)?;
        self.servers = vec![self.server.clone()];
        for url in further {
            if !self.servers.contains(&url) {
                self.servers.push(url);
            }
        }
        Ok(())
    }

    /// Trusts these PEM certificates.
    pub fn with_ca(mut self, ca: Source) -> Self {
        self.ca = Some(ca);
        self.kubeconfig = None;
        self
    }

    /// Uses this client certificate.
    pub fn with_identity(mut self, certificate: Source, key: Source) -> Self {
        self.identity = Some(Identity { certificate, key });
        self.kubeconfig = None;
        self
    }

    /// Uses this bearer token.
    pub fn with_token(mut self, token: Source) -> Self {
        self.token = Some(token);
        self
    }

    /// Sets `User-Agent`, usually to the component's name.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    fn list_certificate_files(&self) -> Vec<PathBuf> {
        let pair = self.identity.iter();
        let sources = pair.flat_map(|identity| [&identity.certificate, &identity.key]);
        let sources = self.ca.iter().chain(sources);
        sources.filter_map(Source::file).cloned().collect()
    }

    /// Returns the files with the CA, the client certificate and its key, the kubeconfig included.
    pub(crate) fn list_credential_files(&self) -> Vec<PathBuf> {
        let mut files = self.list_certificate_files();
        files.extend(self.kubeconfig.as_ref().map(|file| file.path.clone()));
        files
    }

    /// Checks that each file that is read again after a change can be opened, for a process that
    /// has changed its user.
    ///
    /// # Errors
    /// A file can't be opened; the error names it.
    pub fn check_files(&self) -> Result<()> {
        let token = self.token.as_ref().and_then(Source::file).cloned();
        for path in self.list_credential_files().into_iter().chain(token) {
            std::fs::File::open(&path).map_err(|error| {
                Error::Config(format!("cannot read {}: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// Sets the timeout of a request other than a watch or a log stream.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_omits_inline_tokens_and_keys() {
        let inline = || Source::Inline(b"secret".to_vec());
        let config = Config::builder("https://192.0.2.1")
            .with_ca(Source::File("/ca.crt".into()))
            .with_identity(inline(), inline())
            .with_token(inline());
        let text = format!("{config:?} {config:#?}");
        assert!(text.contains("/ca.crt"), "{text}");
        // As text, and as a list of bytes.
        assert!(!text.contains("secret") && !text.contains("115"), "{text}");
    }
}
