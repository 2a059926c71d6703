//! Assembles the proxy: informers record changed Services, and [`Proxy`] applies the difference.
//!
//! No rule is applied before both informers have synced, so that a restart never removes rules of
//! Services.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base_task::Tasks;
use base_telemetry::Metrics;
use client::{Client, Event, Informer, ListParams, Store};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use net_nft::TableWatch;

use crate::base_chains::TABLE;
use crate::desired::DesiredRules;
use crate::dirty_services::{DirtyServices, object_key};
use crate::health::{Health, serve_health, serve_metrics};
use crate::health_checks::Checks;
use crate::local::LocalNode;
use crate::metrics::{ChangeMetrics, ProxyMetrics};
use crate::settings::{Settings, apply_conntrack_settings};
use crate::sync::Proxy;

const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Excludes Services that another proxy serves.
const NOT_OURS: &str = "!service.kubernetes.io/service-proxy-name";
/// Excludes Services without a cluster IP. By the field and not by the label, which anyone may set
/// on a Service that has an address.
const NOT_HEADLESS: &str = "spec.clusterIP!=None";
/// Excludes slices of such Services; their controller sets and removes the labels.
const SLICES: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";

/// Time that the first installation waits for the ranges of cluster IPs.
const RANGES_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until shutdown. The rules stay.
///
/// The future is boxed, so that its code is compiled here and not once more in the program.
pub fn run(
    client: Client,
    settings: Settings,
    tasks: Tasks,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(run_proxy(client, settings, tasks))
}

async fn run_proxy(client: Client, settings: Settings, tasks: Tasks) -> anyhow::Result<()> {
    // Fails at the start and not at the first Service, with a message that names the missing
    // program.
    net_nft::check_nft()
        .await
        .context("rules can't be installed")?;
    apply_conntrack_settings(&settings).await?;
    let families = net_nft::supported_families();
    let health = Arc::new(Health::new(2 * settings.sync_period, families));
    let metrics = Arc::new(Metrics::new());
    let figures = ProxyMetrics::new(&metrics);
    let changes = ChangeMetrics::new(&metrics);
    health.register(&metrics);
    // Before the health port opens: the kubelet of a node that boots starts pods after that.
    start_policies(&client, &settings, &metrics, &tasks).await?;
    let hard_fail = settings.bind_hard_fail;
    if let Some(address) = settings.healthz {
        serve_health(address, health.clone(), hard_fail, &tasks).await?;
    }
    if let Some(address) = settings.metrics {
        serve_metrics(address, metrics.clone(), hard_fail, &tasks).await?;
    }
    let dirty = Arc::new(DirtyServices::new(changes));
    let (services, slices, nodes) = start_informers(&client, &settings, &dirty, &tasks);
    let service_ranges = start_range_informer(&client, &dirty, &tasks);
    let stores = net_announce::Stores {
        services: services.clone(),
        slices: slices.clone(),
        nodes: nodes.clone(),
        ranges: service_ranges.clone(),
    };
    start_announcements(&settings, stores, &health, &metrics, &tasks)?;
    let shutdown = tasks.shutdown().clone();
    let work = async {
        wait_until_synced(&services, &slices, &nodes, &service_ranges).await;
        let checks = Checks::new(tasks.clone(), health.clone());
        let node = LocalNode::default();
        let mut proxy = Proxy {
            watch: TableWatch::open(TABLE, settings.sync_period),
            synced: None,
            settings,
            services,
            slices,
            nodes,
            service_ranges,
            node,
            node_object: None,
            desired: DesiredRules::default(),
            checks,
            figures,
            health,
        };
        proxy.follow_changes(&dirty).await;
    };
    tokio::select! {
        () = work => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

async fn wait_until_synced(
    services: &Store<Service>,
    slices: &Store<EndpointSlice>,
    nodes: &Store<NodeObject>,
    service_ranges: &Store<ServiceCIDR>,
) {
    // All three, because a Service without its slices would look like one without endpoints and be
    // rejected.
    services.wait_until_synced().await;
    slices.wait_until_synced().await;
    nodes.wait_until_synced().await;
    // Services work without, so a process that may not list these starts nevertheless.
    let ranges = service_ranges.wait_until_synced();
    let _ = tokio::time::timeout(RANGES_TIMEOUT, ranges).await;
}

/// Starts the agent that announces addresses of load balancers. It shares the informers, and
/// announces while `/healthz` succeeds.
fn start_announcements(
    settings: &Settings,
    stores: net_announce::Stores,
    health: &Arc<Health>,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let Some(settings) = settings.announcements.clone() else {
        return Ok(());
    };
    let health = health.clone();
    let is_ready = Arc::new(move || health.accepts_load_balancers());
    net_announce::start_agent(settings, stores, is_ready, metrics, tasks)?;
    Ok(())
}

/// Starts the agent of NetworkPolicies. It has informers, rules and errors of its own: a
/// transaction or a request that fails for one does not affect the other. A panic of either ends
/// the process.
async fn start_policies(
    client: &Client,
    settings: &Settings,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let Some(policies) = settings.policies.clone() else {
        // Rules of an earlier process with the option would isolate pods forever by old policies.
        if let Err(error) = net_policy::delete_tables().await {
            tracing::warn!(%error, "rules of NetworkPolicies could not be removed; those of an earlier process stay");
        }
        return Ok(());
    };
    net_policy::close_new_tables(&policies.network)
        .await
        .context("pods can't be isolated")?;
    let agent = net_policy::run_agent(client.clone(), policies, metrics.clone(), tasks.clone());
    tasks.spawn_critical("network policies", agent);
    Ok(())
}

type Stores = (Store<Service>, Store<EndpointSlice>, Store<NodeObject>);

fn start_informers(
    client: &Client,
    settings: &Settings,
    dirty: &Arc<DirtyServices>,
    tasks: &Tasks,
) -> Stores {
    let dirty_services = dirty.clone();
    let services = Informer::new(
        client.api::<Service>(),
        ListParams::new()
            .with_labels(NOT_OURS)
            .with_fields(NOT_HEADLESS),
    )
    .on_event(move |event: Event<Service>| {
        dirty_services.mark_service(object_key(&event.object().metadata))
    })
    .spawn(tasks);
    let dirty_services = dirty.clone();
    let slices = Informer::new(
        client.api::<EndpointSlice>(),
        ListParams::new().with_labels(SLICES),
    )
    .index("service", |slice| service_of(slice).into_iter().collect())
    .on_event(move |event: Event<EndpointSlice>| mark_slice(&dirty_services, &event))
    .spawn(tasks);
    let dirty_services = dirty.clone();
    // Only the own Node: watching all would send every heartbeat of the cluster to every proxy.
    let own = ListParams::new().with_fields(format!("metadata.name={}", settings.node_name));
    let nodes = Informer::new(client.api::<NodeObject>(), own)
        .on_event(move |_: Event<NodeObject>| dirty_services.mark_node())
        .spawn(tasks);
    (services, slices, nodes)
}

fn start_range_informer(
    client: &Client,
    dirty: &Arc<DirtyServices>,
    tasks: &Tasks,
) -> Store<ServiceCIDR> {
    let dirty = dirty.clone();
    Informer::new(client.api::<ServiceCIDR>(), ListParams::new())
        .on_event(move |_: Event<ServiceCIDR>| dirty.mark_node())
        .spawn(tasks)
}

fn mark_slice(dirty: &DirtyServices, event: &Event<EndpointSlice>) {
    let (old, new) = match event {
        Event::Applied { old, new } => (old.as_deref(), new),
        Event::Deleted(last) => {
            service_of(last)
                .into_iter()
                .for_each(|key| dirty.mark_deleted_endpoints(key));
            return;
        }
    };
    let key = service_of(new);
    // A slice may change its label; then both Services change.
    if let Some(former) = old.and_then(service_of)
        && Some(&former) != key.as_ref()
    {
        dirty.mark_deleted_endpoints(former);
    }
    if let Some(key) = key {
        dirty.mark_endpoints(key, old, new);
    }
}

fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(format!(
        "{}/{name}",
        slice.metadata.namespace.as_deref().unwrap_or_default()
    ))
}
