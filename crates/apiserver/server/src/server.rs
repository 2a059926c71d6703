//! The state shared by all requests.

use crate::aggregation::Aggregation;
use crate::bootstrap_steps::Steps;
use crate::connect::Kubelets;
use crate::credentials::IdentityHeaders;
use crate::discovery_documents::Discovery;
use crate::feature_gates::FeatureGates;
use crate::flow::FlowControl;
use crate::inflight::InFlight;
use crate::metrics::ServerMetrics;
use crate::negotiate::Formats;
use crate::response_budget::ResponseBudget;
use api_kinds::EmulatedRelease;
use apiserver_audit::{AuditMetrics, Auditor};
use apiserver_authn::Authn;
use apiserver_authz::Authz;
use apiserver_cache::Caches;
use apiserver_crd::Definitions;
use apiserver_policy::PolicyMetrics;
use apiserver_registry::Registry;
use apiserver_storage::Store;
use apiserver_webhook::{ConversionMetrics, WebhookMetrics};
use base_task::Tasks;
use base_tls::CertificateFiles;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The parts of a running server.
pub struct Server {
    /// Reads and writes of objects.
    pub registry: Arc<Registry>,
    /// The watch caches.
    pub caches: Arc<Caches>,
    /// The store's client, for health checks.
    pub store: Store,
    /// The authenticators.
    pub authn: Arc<Authn>,
    /// The headers in which front proxies send users.
    pub identity_headers: IdentityHeaders,
    /// The certificates that the server itself uses.
    pub certificate_files: CertificateFiles,
    /// The authorizers.
    pub authz: Arc<Authz>,
    /// The audit, if there is a policy and a backend.
    pub audit: Option<Arc<Auditor>>,
    /// Metrics of the audit.
    pub audit_metrics: Arc<AuditMetrics>,
    /// The classification of requests into flows.
    pub flow: Arc<FlowControl>,
    /// Discovery and OpenAPI documents.
    pub discovery: Discovery,
    /// `/metrics`
    pub metrics: ServerMetrics,
    /// Metrics of admission webhooks.
    pub webhook_metrics: Arc<WebhookMetrics>,
    /// Metrics of conversion webhooks.
    pub conversion_metrics: Arc<ConversionMetrics>,
    /// The life cycle of custom resource definitions.
    pub definitions: Arc<Definitions>,
    /// The feature gates.
    pub feature_gates: FeatureGates,
    /// The release that is emulated.
    pub emulated: EmulatedRelease,
    /// The formats of resources.
    pub formats: Formats,
    /// Metrics of admission policies.
    pub policy_metrics: Arc<PolicyMetrics>,
    /// Connections to kubelets.
    pub kubelets: Kubelets,
    /// APIServices and extension servers.
    pub aggregation: Aggregation,
    /// `host:port` under which clients reach this server.
    pub external_address: String,
    /// The completed bootstrap steps.
    pub bootstrapped: Steps,
    /// Limits of concurrent requests.
    pub inflight: InFlight,
    /// Limits of the bytes of unsent responses.
    pub response_budget: ResponseBudget,
    /// Timeout of a request.
    pub request_timeout: Duration,
    /// Cancelled at the stop signal or when a critical task has failed: not ready, but still
    /// serving.
    pub stopping: CancellationToken,
    /// Cancelled when serving ends: watches end.
    pub closing: CancellationToken,
    /// The background tasks; a critical failure stops the server.
    pub tasks: Tasks,
}
