//! Connections, tasks and metrics that issuers use.

use super::metrics::JwtMetrics;
use base_task::Tasks;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a document in bytes. Issuers publish a few KiB.
pub const MAX_DOCUMENT: usize = 1024 * 1024;

/// Keys of an issuer that could not be fetched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The request failed.
    #[error("{0}")]
    Request(String),
    /// The issuer's servers did not respond in time.
    #[error("no keys within {0:?}")]
    Timeout(Duration),
    /// The discovery document can't be used.
    #[error("the discovery document {0}")]
    Discovery(&'static str),
    /// The key set can't be read.
    #[error(transparent)]
    KeySet(#[from] Arc<base_jwt::KeySetError>),
}

/// Gets documents over verified TLS.
#[async_trait::async_trait]
pub trait KeyFetcher: Send + Sync {
    /// Gets the document at a URL of the scheme https, of at most [`MAX_DOCUMENT`] bytes. The
    /// server is verified by `authority`, certificates in PEM, or the system's roots if it is
    /// empty.
    ///
    /// # Errors
    /// No complete response with status 200 to 206.
    async fn fetch(&self, url: &str, authority: &str) -> Result<Bytes, FetchError>;
}

/// Connections, tasks and metrics of all issuers.
pub struct IssuerEnvironment {
    /// Gets discovery documents and key sets.
    pub fetcher: Arc<dyn KeyFetcher>,
    /// Fetches are tasks of this group.
    pub tasks: Tasks,
    /// Metrics.
    pub metrics: Arc<JwtMetrics>,
}
