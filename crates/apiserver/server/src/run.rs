//! Puts the parts together and serves.

use crate::bootstrap;
use crate::discovery::Discovery;
use crate::flow::{self, FlowControl};
use crate::metrics::ServerMetrics;
use crate::options::{ServerOptions, duration};
use crate::proxy::{KubeletTls, Kubelets};
use crate::server::Server;
use crate::{pipeline, quotas};
use anyhow::Context as _;
use apiserver_admission as admission;
use apiserver_authn::Authn;
use apiserver_authz::Authz;
use apiserver_cache::Caches;
use apiserver_registry::{Allocators, Registry, RegistryOptions, ServiceOptions};
use apiserver_request::Objects;
use apiserver_storage::{Store, compact_regularly};
use base_serve::{bind, serve, write_port_file};
use base_task::{CancellationToken, Tasks};
use base_tls::{ClientAuth, ServerTls, server_config};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long open requests may go on after the signal.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs a server until `shutdown`.
///
/// # Errors
/// A file, address or option that can't be used.
pub async fn run(options: ServerOptions, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listener = bind(SocketAddr::new(options.bind_address, options.secure_port)).await?;
    let port = listener.local_addr().context("the listener has no address")?.port();
    let tasks = Tasks::new(CancellationToken::new());
    let server = build(&options, port, &tasks, shutdown.clone())?;
    tasks.spawn("bootstrap", bootstrap::run(server.clone(), options.clone(), port));
    tasks.spawn("flow-schemas", flow::keep(server.clone(), tasks.shutdown().clone()));
    if let Some(path) = &options.port_file {
        write_port_file(path, port).with_context(|| format!("can't write {}", path.display()))?;
    }
    serve_until(listener, &options, server, &shutdown).await?;
    tasks.shutdown().cancel();
    tasks.wait(Duration::from_secs(2)).await;
    Ok(())
}

fn build(
    options: &ServerOptions,
    port: u16,
    tasks: &Tasks,
    shutdown: CancellationToken,
) -> anyhow::Result<Arc<Server>> {
    let store = Store::new(&options.store())?;
    let caches = Caches::start(store.clone(), options.etcd_prefix.trim_end_matches('/'), tasks.shutdown().clone());
    let objects: Arc<dyn Objects> = caches.clone();
    let authn = Authn::new(options.authn(), objects.clone())?;
    let authz = Authz::new(&options.modes()?, &objects);
    let slot = Arc::new(admission::QuotaSlot::default());
    let plugins = plugins(options, &objects, &authz, &slot)?;
    let services = ServiceOptions {
        cidrs: options.service_cluster_ip_range.clone(),
        node_ports: options.service_node_port_range.clone(),
    };
    let registry_options = RegistryOptions {
        event_ttl: i64::try_from(duration("event-ttl", &options.event_ttl)?.as_secs()).unwrap_or(3600),
        admission: plugins,
        tokens: authn.issuer(),
        services: Allocators::new(services),
    };
    let registry = Registry::new(store.clone(), caches.clone(), registry_options);
    slot.set(Arc::new(quotas::Quotas(registry.clone())));
    let interval = duration("etcd-compaction-interval", &options.etcd_compaction_interval)?;
    if !interval.is_zero() {
        tasks.spawn("compaction", compact_regularly(store.clone(), interval, tasks.shutdown().clone()));
    }
    let address = external_address(options, port);
    Ok(Arc::new(Server {
        registry,
        caches,
        store,
        authn,
        authz,
        flow: FlowControl::new(&objects),
        discovery: Discovery::new(&address),
        metrics: ServerMetrics::default(),
        kubelets: Kubelets::new(&kubelet_tls(options))?,
        external_address: address,
        bootstrapped: AtomicBool::new(false),
        stopping: shutdown,
    }))
}

fn plugins(
    options: &ServerOptions,
    objects: &Arc<dyn Objects>,
    authz: &Arc<Authz>,
    quotas: &Arc<admission::QuotaSlot>,
) -> anyhow::Result<Vec<Arc<dyn apiserver_request::Admission>>> {
    let context = admission::Context { objects: objects.clone(), authorizer: authz.clone(), quotas: quotas.clone() };
    let names = admission::Options {
        enable: options.enable_admission_plugins.clone(),
        disable: options.disable_admission_plugins.clone(),
    };
    let mut plugins = admission::plugins(&names, &context)?;
    if let Some(check) = authz.escalation_check(objects) {
        plugins.push(check);
    }
    Ok(plugins)
}

fn external_address(options: &ServerOptions, port: u16) -> String {
    let host = if options.external_hostname.is_empty() {
        options.advertised().to_string()
    } else {
        options.external_hostname.clone()
    };
    crate::proxy::joined(&host, u64::from(port))
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
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let tls = server_config(&ServerTls {
        certificate: options.tls_cert_file.clone(),
        key: options.tls_private_key_file.clone(),
        client_auth: ClientAuth::Request,
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    })?;
    let serving = base_serve::Options { tls: Some(tls), drain: DRAIN, ..base_serve::Options::default() };
    let address = listener.local_addr().context("the listener has no address")?;
    tracing::info!(%address, "serving HTTPS");
    let service = hyper::service::service_fn(move |request| {
        // Some 12 KiB, which would be copied from place to place otherwise.
        let answer = Box::pin(pipeline::handle(server.clone(), request));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    serve(listener, serving, service, shutdown.clone()).await;
    tracing::info!("stopped");
    Ok(())
}
