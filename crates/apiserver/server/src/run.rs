//! Assembles and runs the server.

use crate::aggregation::{self, Aggregation};
use crate::authorizers::build_authz;
use crate::bootstrap;
use crate::bootstrap_steps::Steps;
use crate::connect::reach::ReachPolicy;
use crate::connect::{KubeletTls, Kubelets};
use crate::conversion::webhook_converters;
use crate::discovery_documents::Discovery;
use crate::durations::parse_duration;
use crate::feature_gates::{CBOR, FeatureGates};
use crate::flow::{self, FlowControl};
use crate::inflight::InFlight;
use crate::metrics::ServerMetrics;
use crate::negotiate::Formats;
use crate::options::ServerOptions;

use crate::response_budget::{BudgetLimits, ResponseBudget};
use crate::server::Server;
use crate::{issuers, pipeline, policies, quotas, runtime_config, webhooks};
use anyhow::Context as _;
use api_kinds::EmulatedRelease;
use api_strategy::DisabledFields;
use apiserver_admission as admission;
use apiserver_audit::{AuditMetrics, Auditor};
use apiserver_authn::Authn;
use apiserver_authz::Authz;
use apiserver_cache::Caches;
use apiserver_crd::{Backlog, DefinitionOptions, Definitions, TerminatingGuard};
use apiserver_policy::PolicyMetrics;
use apiserver_registry::{Allocators, Registry, RegistryOptions, ServiceOptions};
use apiserver_request::{Admission, Authorizer, Objects};
use apiserver_storage::{Store, compact_regularly};
use apiserver_webhook::{ConversionClient, ConversionMetrics, WebhookMetrics};
use apiserver_webhook_client::{Credentials, Transport};
use base_serve::{bind_listener, serve_http, write_port_file};
use base_task::{CancellationToken, Tasks};
use base_tls::{CertificateFiles, ClientAuth, Offer, ServerTls, server_config_with};
use futures::future::BoxFuture;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Time after the end of the serving for requests that last as long as their client wants, such as
/// the log of a pod.
const LONG_DRAIN: Duration = Duration::from_secs(10);
/// Time in which connections send what they have buffered.
const LAST_SENDING: Duration = Duration::from_secs(2);
/// Time for the end of the background tasks: one that hangs must not keep a stopped server from
/// exiting.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Runs a server until `shutdown`.
///
/// The future is boxed, so that its code is compiled here and not once more in the program.
///
/// # Errors
/// A file, address or option that can't be used.
pub fn run(
    options: ServerOptions,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_server(options, shutdown))
}

async fn run_server(options: ServerOptions, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Bound first, so that the port is known when the endpoints are published.
    let listener =
        bind_listener(SocketAddr::new(options.bind_address, options.secure_port)).await?;
    let port = listener
        .local_addr()
        .context("the listener has no address")?
        .port();
    let tasks = Tasks::new(CancellationToken::new());
    // Apart from the others: the audit outlives the requests, after a failure of a task, too.
    let audit_tasks = Tasks::new(CancellationToken::new());
    // Parsed before anything runs, so that a bad flag fails the start and not the shutdown.
    let delay = parse_duration("shutdown-delay-duration", &options.shutdown_delay_duration)?;
    let server = build_server(&options, port, &tasks, &audit_tasks)?;
    tasks.spawn(
        "shutdown",
        close_server(
            shutdown,
            tasks.shutdown().clone(),
            delay,
            [server.stopping.clone(), server.closing.clone()],
        ),
    );
    tasks.spawn(
        "bootstrap",
        // In the background: bootstrap writes through this server's registry, and /readyz shows its
        // steps.
        bootstrap::run_bootstrap(server.clone(), options.clone(), port),
    );
    tasks.spawn_critical(
        "local-api-services",
        aggregation::maintain_local(server.clone(), tasks.shutdown().clone()),
    );
    tasks.spawn_critical(
        "remote-api-services",
        aggregation::maintain_remote(server.clone(), tasks.shutdown().clone()),
    );
    tasks.spawn_critical(
        "flow-schemas",
        flow::maintain_status(server.clone(), tasks.shutdown().clone()),
    );
    tasks.spawn_critical(
        "audit",
        watch_audit(audit_tasks.shutdown().clone(), tasks.shutdown().clone()),
    );
    // As late as possible: a reader of the file connects at once, and waits in the listener's
    // queue.
    if let Some(path) = &options.port_file {
        write_port_file(path, port).with_context(|| format!("can't write {}", path.display()))?;
    }
    serve_until(listener, &options, server).await?;
    let finished = tasks.finish(LAST_TASKS).await;
    // Last, because the end of a request or of a task may be an event.
    let audited = audit_tasks.finish(LAST_TASKS).await;
    Ok(finished.and(audited)?)
}

/// Waits for the end of the audit, or for `shutdown`. As a critical task that ends before shutdown,
/// it stops a server that no longer records requests.
async fn watch_audit(audit: CancellationToken, shutdown: CancellationToken) {
    tokio::select! {
        () = audit.cancelled() => {}
        () = shutdown.cancelled() => {}
    }
}

/// Stops serving some time after the stop signal, so that load balancers see `/readyz` fail and the
/// endpoints of `kubernetes` lose this server first; stops at once if a critical task has failed,
/// because the rest of the server would serve stale data.
async fn close_server(
    signal: CancellationToken,
    failed: CancellationToken,
    delay: Duration,
    [stopping, closing]: [CancellationToken; 2],
) {
    tokio::select! {
        () = failed.cancelled() => stopping.cancel(),
        () = signal.cancelled() => {
            stopping.cancel();
            // A failure during the delay ends it: stale data must not be served.
            let _ = tokio::time::timeout(delay, failed.cancelled()).await;
        }
    }
    closing.cancel();
}

pub(crate) fn build_server(
    options: &ServerOptions,
    port: u16,
    tasks: &Tasks,
    audit_tasks: &Tasks,
) -> anyhow::Result<Arc<Server>> {
    let assembly = Assembly::new(options, tasks)?;
    // Two-phase wiring: admission needs the registry to write quota usage, and the registry needs
    // admission.
    let slot = Arc::new(admission::QuotaSlot::default());
    let backlog = Arc::new(Backlog::default());
    let plugins = assembly.build_plugins(&slot, &backlog)?;
    let registry = assembly.build_registry(plugins)?;
    let definitions = assembly.start_definitions(&registry, backlog);
    // From here on quota is charged; no request was served before.
    slot.set(Arc::new(quotas::Quotas(registry.clone())));
    assembly.start_compaction()?;
    assembly.follow_store_certificates();
    let address = external_address(options, port);
    let audit_metrics = Arc::default();
    let request_timeout = parse_duration("request-timeout", &options.request_timeout)?;
    Ok(Arc::new(Server {
        registry,
        definitions,
        discovery: Discovery::new(&address),
        external_address: address,
        identity_headers: options.identity_headers(),
        certificate_files: CertificateFiles::new(options.list_certificate_files()),
        flow: FlowControl::new(&assembly.objects),
        kubelets: Kubelets::new(
            &kubelet_tls(options),
            ReachPolicy::new(port, &options.etcd_servers),
        )?,
        aggregation: assembly.build_aggregation()?,
        audit: assembly.build_audit(&audit_metrics, audit_tasks)?,
        audit_metrics,
        metrics: ServerMetrics::default(),
        formats: assembly.formats(),
        caches: assembly.caches,
        store: assembly.store,
        authn: assembly.authn,
        authz: assembly.authz,
        webhook_metrics: assembly.webhook_metrics,
        conversion_metrics: assembly.conversion_metrics,
        policy_metrics: assembly.policy_metrics,
        feature_gates: assembly.feature_gates,
        emulated: assembly.emulated,
        bootstrapped: Steps::default(),
        inflight: InFlight::new(
            options.max_requests_inflight,
            options.max_mutating_requests_inflight,
            request_timeout,
        ),
        response_budget: ResponseBudget::new(BudgetLimits::default()),
        request_timeout,
        stopping: CancellationToken::new(),
        closing: CancellationToken::new(),
        tasks: tasks.clone(),
    }))
}

/// Parts that the other parts of a server need.
struct Assembly<'a> {
    options: &'a ServerOptions,
    tasks: &'a Tasks,
    store: Store,
    feature_gates: FeatureGates,
    emulated: EmulatedRelease,
    caches: Arc<Caches>,
    /// Reads of the caches.
    objects: Arc<dyn Objects>,
    authn: Arc<Authn>,
    authz: Arc<Authz>,
    webhook_metrics: Arc<WebhookMetrics>,
    policy_metrics: Arc<PolicyMetrics>,
    conversion_metrics: Arc<ConversionMetrics>,
}

impl<'a> Assembly<'a> {
    fn new(options: &'a ServerOptions, tasks: &'a Tasks) -> anyhow::Result<Self> {
        let store = Store::new(&options.store_config())?;
        let emulated = options.release.emulated_release()?;
        let pairs = options.feature_gates.iter().map(String::as_str);
        let feature_gates = FeatureGates::parse(pairs, emulated.release)?;
        let built_in = runtime_config::select_resources(
            &options.runtime_config,
            &emulated,
            &feature_gates,
            &options.storage_media_type,
        )?;
        let caches = Caches::start_with(
            store.clone(),
            // Upstream joins paths, which drops a final slash; with it, a stock server's keys would
            // not be found.
            options.etcd_prefix.trim_end_matches('/'),
            built_in,
            tasks,
        );
        // Authentication, authorization and admission read the caches, which spares the store a
        // read per decision.
        let objects: Arc<dyn Objects> = caches.clone();
        let loaded = options.load_authentication_config()?;
        let anonymous = loaded.as_ref().and_then(|loaded| loaded.anonymous.clone());
        let authorizers = options.authz.authorizers()?;
        let mut authn_options = options.authn_options(anonymous, authorizers.allow_all())?;
        authn_options.jwt = issuers::build_tokens(options, loaded, &objects, tasks)?;
        let authn = Authn::new(authn_options, objects.clone())?;
        let authz = build_authz(options, authorizers, &objects, tasks)?;
        Ok(Self {
            options,
            tasks,
            store,
            feature_gates,
            emulated,
            caches,
            objects,
            authn,
            authz,
            webhook_metrics: Arc::default(),
            policy_metrics: Arc::default(),
            conversion_metrics: Arc::default(),
        })
    }

    fn formats(&self) -> Formats {
        Formats {
            cbor: self.stores_cbor(),
        }
    }

    /// Returns whether CBOR is offered to clients and used in the store.
    fn stores_cbor(&self) -> bool {
        self.feature_gates.is_enabled(CBOR)
    }

    /// Builds the admission plugins in the order in which they are called.
    fn build_plugins(
        &self,
        slot: &Arc<admission::QuotaSlot>,
        backlog: &Arc<Backlog>,
    ) -> anyhow::Result<Vec<Arc<dyn Admission>>> {
        let authorizer: Arc<dyn Authorizer> = self.authz.clone();
        let webhooks = webhooks::build_webhooks(
            self.options,
            &self.caches,
            &authorizer,
            &self.webhook_metrics,
            self.tasks,
        )?;
        let mut plugins = build_admission(
            self.options,
            admission::Context {
                objects: self.objects.clone(),
                authorizer: authorizer.clone(),
                quotas: slot.clone(),
                webhooks,
                policies: policies::build_policies(
                    &self.caches,
                    &authorizer,
                    &self.policy_metrics,
                    &self.feature_gates,
                ),
                emulated_minor: u32::from(self.emulated.release.minor),
            },
            &self.authz,
        )?;
        // Not in the list of plugins either: a policy must not read what its author may not.
        plugins.push(policies::build_param_check(&self.caches, &authorizer));
        // First, so that no webhook is called for a create that is refused.
        plugins.insert(0, Arc::new(TerminatingGuard(backlog.clone())));
        Ok(plugins)
    }

    fn build_registry(&self, admission: Vec<Arc<dyn Admission>>) -> anyhow::Result<Arc<Registry>> {
        let options = self.options;
        let services = ServiceOptions {
            cidrs: options.service_cluster_ip_range.clone(),
            node_ports: options.service_node_port_range.clone(),
        };
        let event_ttl = parse_duration("event-ttl", &options.event_ttl)?;
        let registry_options = RegistryOptions {
            event_ttl: i64::try_from(event_ttl.as_secs()).unwrap_or(3600),
            admission,
            tokens: self.authn.issuer(),
            services: Allocators::new(services),
            disabled_fields: DisabledFields::new(|gate| self.feature_gates.is_enabled(gate)),
        };
        Ok(Registry::new(
            self.store.clone(),
            self.caches.clone(),
            registry_options,
        ))
    }

    /// Starts the life cycle of custom resource definitions.
    fn start_definitions(
        &self,
        registry: &Arc<Registry>,
        backlog: Arc<Backlog>,
    ) -> Arc<Definitions> {
        let transport = Transport::new(
            self.tasks.clone(),
            webhooks::build_resolver(self.options, &self.objects),
            Credentials::default(),
        );
        let client = ConversionClient::new(transport, self.conversion_metrics.clone());
        let options = DefinitionOptions {
            converters: webhook_converters(client),
            stores_cbor: self.stores_cbor(),
        };
        Definitions::start(registry.clone(), backlog, options, self.tasks)
    }

    fn start_compaction(&self) -> anyhow::Result<()> {
        let interval = parse_duration(
            "etcd-compaction-interval",
            &self.options.etcd_compaction_interval,
        )?;
        // 0 leaves compaction to another server or to the store.
        if !interval.is_zero() {
            let shutdown = self.tasks.shutdown().clone();
            self.tasks.spawn_critical(
                "compaction",
                compact_regularly(self.store.clone(), interval, shutdown),
            );
        }
        Ok(())
    }

    /// Lets the connections to the store follow their certificates.
    fn follow_store_certificates(&self) {
        let (store, shutdown) = (self.store.clone(), self.tasks.shutdown().clone());
        self.tasks.spawn("store-certificates", async move {
            shutdown
                .run_until_cancelled(store.follow_certificates())
                .await;
        });
    }

    fn build_audit(
        &self,
        metrics: &Arc<AuditMetrics>,
        audit_tasks: &Tasks,
    ) -> anyhow::Result<Option<Arc<Auditor>>> {
        let flags = &self.options.audit;
        flags.build_auditor(&self.objects, metrics, audit_tasks)
    }

    fn build_aggregation(&self) -> anyhow::Result<Aggregation> {
        Aggregation::new(
            self.options,
            &self.objects,
            webhooks::build_resolver(self.options, &self.objects),
        )
    }
}

fn build_admission(
    options: &ServerOptions,
    context: admission::Context,
    authz: &Arc<Authz>,
) -> anyhow::Result<Vec<Arc<dyn Admission>>> {
    let names = admission::Options {
        enable: options.enable_admission_plugins.clone(),
        disable: options.disable_admission_plugins.clone(),
        network_policies_enforced: options.network_policies_enforced,
    };
    let mut plugins = admission::build_plugins(&names, &context)?;
    // Outside the list of plugins: no flag may disable the protection against escalation by RBAC
    // writes.
    if let Some(check) = authz.escalation_check(&context.objects) {
        plugins.push(check);
    }
    Ok(plugins)
}

fn external_address(options: &ServerOptions, port: u16) -> String {
    let host = if options.external_hostname.is_empty() {
        options.advertised_address().to_string()
    } else {
        options.external_hostname.clone()
    };
    crate::connect::join_host_port(&host, u64::from(port))
}

fn kubelet_tls(options: &ServerOptions) -> KubeletTls {
    KubeletTls {
        certificate: options.kubelet_client_certificate.clone(),
        key: options.kubelet_client_key.clone(),
        ca: options.kubelet_certificate_authority.clone(),
        address_types: options.kubelet_preferred_address_types.clone(),
    }
}

async fn serve_until(
    listener: TcpListener,
    options: &ServerOptions,
    server: Arc<Server>,
) -> anyhow::Result<()> {
    let serving = serve_options(options, server.request_timeout.max(LONG_DRAIN))?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    tracing::info!(%address, "serving HTTPS");
    let closing = server.closing.clone();
    let drained = wait_drained(closing.clone(), server.clone());
    let service = hyper::service::service_fn(move |request| {
        // Boxed: the future has about 12 KiB, which would otherwise be copied at every move.
        let answer = Box::pin(pipeline::handle_request(server.clone(), request));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    // Returns as soon as all connections are closed.
    tokio::select! {
        () = serve_http(listener, serving, service, closing) => {}
        () = drained => tracing::info!("long-running requests are aborted"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// Waits until the requests in flight are handled, each within its timeout. Requests without a
/// timeout, and clients that do not read their response, have [`LONG_DRAIN`].
async fn wait_drained(closing: CancellationToken, server: Arc<Server>) {
    closing.cancelled().await;
    tokio::time::sleep(LONG_DRAIN).await;
    server.inflight.short.wait_idle(LONG_DRAIN).await;
    tokio::time::sleep(LAST_SENDING).await;
}

fn serve_options(options: &ServerOptions, drain: Duration) -> anyhow::Result<base_serve::Options> {
    let offer = Offer::from_names(&options.tls_min_version, &options.tls_cipher_suites)?;
    let h2 = (!options.disable_http2_serving).then(|| b"h2".to_vec());
    let tls = ServerTls {
        certificate: options.tls_cert_file.clone(),
        key: options.tls_private_key_file.clone(),
        // Certificates are one of several credentials, so the handshake must succeed without one.
        client_auth: ClientAuth::Request,
        // In ALPN the server's order decides: HTTP/2 unless the client lacks it.
        alpn: h2.into_iter().chain([b"http/1.1".to_vec()]).collect(),
    };
    let defaults = base_serve::Options::default();
    let max_streams = match options.http2_max_streams_per_connection {
        0 => defaults.max_streams,
        streams => streams,
    };
    Ok(base_serve::Options {
        tls: Some(server_config_with(&tls, &offer)?),
        drain,
        max_streams,
        ..defaults
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the serving ends within `limit`. All times are in milliseconds.
    async fn closes_within(signal: bool, failed: bool, delay: u64, limit: u64) -> bool {
        let [signalled, failure, stopping, closing] =
            std::array::from_fn(|_| CancellationToken::new());
        for (token, set) in [(&signalled, signal), (&failure, failed)] {
            if set {
                token.cancel();
            }
        }
        let closed = close_server(
            signalled,
            failure,
            Duration::from_millis(delay),
            [stopping.clone(), closing.clone()],
        );
        let in_time = tokio::time::timeout(Duration::from_millis(limit), closed)
            .await
            .is_ok();
        assert_eq!(stopping.is_cancelled(), signal || failed);
        in_time && closing.is_cancelled()
    }

    #[tokio::test]
    async fn serving_goes_on_for_the_delay_after_a_signal() {
        assert!(!closes_within(true, false, 60_000, 50).await);
        assert!(closes_within(true, false, 50, 10_000).await);
        assert!(closes_within(true, false, 0, 10_000).await);
    }

    #[tokio::test]
    async fn failed_task_ends_the_serving_at_once() {
        assert!(closes_within(false, true, 60_000, 10_000).await);
        assert!(closes_within(true, true, 60_000, 10_000).await);
        assert!(!closes_within(false, false, 0, 50).await);
    }
}
