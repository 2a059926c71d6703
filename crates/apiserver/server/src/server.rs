//! What every request is served with.

use crate::discovery::Discovery;
use crate::flow::FlowControl;
use crate::metrics::ServerMetrics;
use crate::proxy::Kubelets;
use apiserver_authn::Authn;
use apiserver_authz::Authz;
use apiserver_cache::Caches;
use apiserver_registry::Registry;
use apiserver_storage::Store;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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
    /// The bootstrap objects are there.
    pub bootstrapped: AtomicBool,
    /// Shutdown has begun: not ready, watches end.
    pub stopping: CancellationToken,
}
