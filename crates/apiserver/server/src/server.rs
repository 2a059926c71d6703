//! What every request is served with.

use crate::bootstrap::Steps;
use crate::credentials::IdentityHeaders;
use crate::discovery::Discovery;
use crate::flow::FlowControl;
use crate::inflight::InFlight;
use crate::metrics::ServerMetrics;
use crate::proxy::Kubelets;
use apiserver_authn::Authn;
use apiserver_authz::Authz;
use apiserver_cache::Caches;
use apiserver_registry::Registry;
use apiserver_storage::Store;
use base_task::Tasks;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The running server's parts.
pub struct Server {
    /// Reads and writes.
    pub registry: Arc<Registry>,
    /// The caches.
    pub caches: Arc<Caches>,
    /// The store, for health.
    pub store: Store,
    /// Who asks.
    pub authn: Arc<Authn>,
    /// The headers in which front proxies name users.
    pub identity_headers: IdentityHeaders,
    /// May they.
    pub authz: Arc<Authz>,
    /// Which flow a request belongs to.
    pub flow: Arc<FlowControl>,
    /// Discovery and OpenAPI documents.
    pub discovery: Discovery,
    /// `/metrics`
    pub metrics: ServerMetrics,
    /// Connections to kubelets.
    pub kubelets: Kubelets,
    /// `host:port` under which clients reach this server.
    pub external_address: String,
    /// Which bootstrap objects are there.
    pub bootstrapped: Steps,
    /// How many requests are carried out at once.
    pub inflight: InFlight,
    /// How long a request may take.
    pub request_timeout: Duration,
    /// Shutdown has begun: not ready, but still serving.
    pub stopping: CancellationToken,
    /// The end of serving: watches end.
    pub closing: CancellationToken,
    /// The background tasks, whose failure stops the server.
    pub tasks: Tasks,
}
