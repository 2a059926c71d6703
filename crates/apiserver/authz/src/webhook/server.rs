//! The server of a webhook.

use apiserver_config::ConfigFileError;
use apiserver_webhook_client::{CallError, Endpoint, Kubeconfig, Post, ServiceResolver, Transport};
use base_task::Tasks;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a response in bytes: a decision and its reason.
const MAX_RESPONSE: usize = 256 * 1024;

/// Idle connections to the server. Many requests wait for it at the same time, and each of them
/// would open a connection and close it.
const MAX_IDLE: usize = 256;

/// Sends reviews.
#[async_trait::async_trait]
pub trait ReviewServer: Send + Sync {
    /// Posts a review and returns the body of the response.
    ///
    /// # Errors
    /// No complete response with a successful status in this time.
    async fn post_review(&self, review: Bytes, timeout: Duration) -> Result<Bytes, CallError>;
}

/// Opens connections to webhooks.
pub trait ConnectServer: Send + Sync {
    /// Returns the server of a kubeconfig's current context. Opens no connection yet.
    ///
    /// # Errors
    /// The file can't be used.
    fn connect(&self, kubeconfig: &Path) -> Result<Arc<dyn ReviewServer>, ConfigFileError>;
}

/// Connections of this process.
pub struct WebhookConnections {
    /// Connections are tasks of this group.
    pub tasks: Tasks,
    /// Resolves Services.
    pub resolver: Arc<dyn ServiceResolver>,
}

struct HttpServer {
    transport: Arc<Transport>,
    endpoint: Endpoint,
}

impl ConnectServer for WebhookConnections {
    fn connect(&self, kubeconfig: &Path) -> Result<Arc<dyn ReviewServer>, ConfigFileError> {
        let config = Kubeconfig::read_file(kubeconfig)?;
        let (tasks, resolver) = (self.tasks.clone(), self.resolver.clone());
        Ok(Arc::new(HttpServer {
            endpoint: config.endpoint()?,
            transport: Transport::with_max_idle(
                tasks,
                resolver,
                config.current_credentials()?,
                MAX_IDLE,
            ),
        }))
    }
}

#[async_trait::async_trait]
impl ReviewServer for HttpServer {
    async fn post_review(&self, review: Bytes, timeout: Duration) -> Result<Bytes, CallError> {
        let post = Post {
            endpoint: &self.endpoint,
            body: review,
            timeout,
            user_agent: "kube-apiserver",
            max_response: MAX_RESPONSE,
        };
        self.transport.post(post).await
    }
}
