//! Address and credentials for an API server.
//!
//! Certificates from files are read again for each new connection, tokens after one minute, so that
//! rotation needs no restart.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};

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

/// A client certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Certificate chain.
    pub certificate: Source,
    /// Private key.
    pub key: Source,
}

/// Configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `https://host:port`, or `http://` for tests.
    pub server: String,
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
            ca: None,
            identity: None,
            token: None,
            tls_server_name: None,
            insecure: false,
            impersonate: None,
            namespace: "default".to_owned(),
            user_agent: format!("ironclad/{}", env!("CARGO_PKG_VERSION")),
            timeout: Duration::from_secs(60),
        }
    }

    /// Trusts these PEM certificates.
    pub fn with_ca(mut self, ca: Source) -> Self {
        self.ca = Some(ca);
        self
    }

    /// Uses this client certificate.
    pub fn with_identity(mut self, certificate: Source, key: Source) -> Self {
        self.identity = Some(Identity { certificate, key });
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
