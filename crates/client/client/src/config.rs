//! Where the API server is, and as whom to talk to it.
//!
//! Certificates and tokens that come from files are read again when a connection is made (certificates) or
//! when a minute has passed (tokens): rotation needs no restart.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};

/// Bytes that are given, or that are read from a file when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The bytes.
    Inline(Vec<u8>),
    /// The file.
    File(PathBuf),
}

impl Source {
    /// The bytes, read now.
    pub fn read(&self) -> Result<Vec<u8>> {
        match self {
            Self::Inline(bytes) => Ok(bytes.clone()),
            Self::File(path) => {
                std::fs::read(path).map_err(|error| Error::Config(format!("cannot read {}: {error}", path.display())))
            }
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

/// How to reach an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `https://host:port`, or `http://` for tests.
    pub server: String,
    /// Certificates to trust, PEM; absent: those of the system.
    pub ca: Option<Source>,
    /// Client certificate.
    pub identity: Option<Identity>,
    /// Bearer token.
    pub token: Option<Source>,
    /// Name to expect in the server's certificate instead of the host.
    pub tls_server_name: Option<String>,
    /// Accept any certificate of the server.
    pub insecure: bool,
    /// User name to act as.
    pub impersonate: Option<String>,
    /// Namespace of the context.
    pub namespace: String,
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// Time for a request other than a watch or a log stream.
    pub timeout: Duration,
}

impl Config {
    /// A server without credentials.
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

    /// The current context of a kubeconfig file.
    pub fn from_kubeconfig(path: impl AsRef<Path>) -> Result<Self> {
        crate::kubeconfig::load(path.as_ref(), None)
    }

    /// A named context of a kubeconfig file.
    pub fn from_kubeconfig_context(path: impl AsRef<Path>, context: &str) -> Result<Self> {
        crate::kubeconfig::load(path.as_ref(), Some(context))
    }

    /// The service account of the pod that this process runs in.
    pub fn in_cluster() -> Result<Self> {
        crate::kubeconfig::in_cluster()
    }

    /// The given kubeconfig, or the pod's service account when none is given.
    pub fn from_kubeconfig_or_in_cluster(path: Option<&Path>) -> Result<Self> {
        path.map_or_else(Self::in_cluster, Self::from_kubeconfig)
    }

    /// Trust these PEM certificates.
    pub fn ca(mut self, ca: Source) -> Self {
        self.ca = Some(ca);
        self
    }

    /// Present this client certificate.
    pub fn identity(mut self, certificate: Source, key: Source) -> Self {
        self.identity = Some(Identity { certificate, key });
        self
    }

    /// Send this bearer token.
    pub fn token(mut self, token: Source) -> Self {
        self.token = Some(token);
        self
    }

    /// Sent as `User-Agent`, usually the component's name.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Time for a request other than a watch or a log stream.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}
