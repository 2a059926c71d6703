//! Assembles the proxy: informers record changed Services, and [`Proxy`] applies the difference.
//!
//! No rule is applied before both informers have synced, so that a restart never removes rules of
//! Services.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use api_address_pool::ALLOCATION_CONDITION;
use api_semantics::endpoints::{
    SERVICE_NAME, is_endpoint_ready, is_endpoint_serving, is_endpoint_terminating, service_key,
};
use base_task::Tasks;
use base_telemetry::Metrics;
use client::{Client, Event, Informer, ListParams, Store};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::backend::{Backend, check_programs};
use crate::dirty_services::{DirtyServices, TRIGGER_TIME, object_key};
use crate::health::{Health, serve_health, serve_metrics};
use crate::health_checks::Checks;
use crate::local::LocalNode;
use crate::metrics::{ChangeMetrics, ProxyMetrics};
use crate::retry::Retry;
use crate::settings::{Settings, apply_conntrack_settings};
use crate::sync::Proxy;

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
    let families = check_programs(&settings.mode)
        .await
        .context("rules can't be installed")?;
    apply_conntrack_settings(&settings).await?;
    let health = Arc::new(Health::new(2 * settings.sync_period, families.clone()));
    let metrics = Arc::new(Metrics::new());
    let figures = ProxyMetrics::new(&metrics, &settings.mode);
    let changes = ChangeMetrics::new(&metrics);
    health.register(&metrics);
    // Before the health port opens: the kubelet of a node that boots starts pods after that.
    start_policies(&client, &settings, &metrics, &tasks).await?;
    start_servers(&client, &settings, &health, &metrics, &tasks).await?;
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
        let backend = Backend::open(&settings);
        let mut proxy = Proxy {
            desired: backend.desired_rules(),
            backend,
            families,
            family_retry: Retry::default(),
            removal_retry: Retry::default(),
            synced: None,
            settings,
            services,
            slices,
            nodes,
            service_ranges,
            node: LocalNode::default(),
            node_object: None,
            checks: Checks::new(tasks.clone(), health.clone()),
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

async fn start_servers(
    client: &Client,
    settings: &Settings,
    health: &Arc<Health>,
    metrics: &Arc<Metrics>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let hard_fail = settings.bind_hard_fail;
    if let Some(address) = settings.healthz {
        serve_health(address, health.clone(), hard_fail, tasks).await?;
    }
    if let Some(address) = settings.metrics {
        let mode = settings.mode.name();
        serve_metrics(address, client, metrics.clone(), mode, hard_fail, tasks).await?;
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
    .transform(strip_service)
    .packed()
    .index(net_announce::ANNOUNCED, net_announce::index_announced)
    .on_event(move |event: Event<Service>| {
        dirty_services.mark_service(object_key(&event.object().metadata))
    })
    .spawn(tasks);
    let dirty_services = dirty.clone();
    let slices = Informer::new(
        client.api::<EndpointSlice>(),
        ListParams::new().with_labels(SLICES),
    )
    .transform(strip_slice)
    .packed()
    .index("service", |slice| service_key(slice).into_iter().collect())
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

/// Drops what neither rules nor announcements need. A node keeps all Services and endpoints of the
/// cluster.
fn strip_service(service: &mut Service) {
    strip_metadata(&mut service.metadata);
    if let Some(spec) = &mut service.spec {
        (spec.selector, spec.ip_families, spec.ip_family_policy) = (None, None, None);
        for port in spec.ports.iter_mut().flatten() {
            (port.target_port, port.app_protocol) = (None, None);
        }
    }
    let status = service.status.as_mut();
    if let Some(conditions) = status.and_then(|status| status.conditions.as_mut()) {
        // It names the address of the pool that is announced.
        conditions.retain(|condition| condition.type_ == ALLOCATION_CONDITION);
    }
}

/// Drops what neither rules nor announcements need.
fn strip_slice(slice: &mut EndpointSlice) {
    let meta = &mut slice.metadata;
    let (labels, annotations) = (meta.labels.take(), meta.annotations.take());
    strip_metadata(meta);
    meta.creation_timestamp = None;
    meta.labels = retain_key(labels, SERVICE_NAME);
    meta.annotations = retain_key(annotations, TRIGGER_TIME);
    for endpoint in slice.endpoints.iter_mut().flatten() {
        (endpoint.target_ref, endpoint.hostname) = (None, None);
        (endpoint.deprecated_topology, endpoint.zone) = (None, None);
        let conditions = endpoint.conditions.as_ref();
        let is_plain = is_endpoint_ready(conditions)
            && is_endpoint_serving(conditions)
            && !is_endpoint_terminating(conditions);
        // Absent conditions mean the same.
        if is_plain {
            endpoint.conditions = None;
        }
    }
}

/// Leaves what identifies an object, with the time of its creation.
fn strip_metadata(meta: &mut ObjectMeta) {
    *meta = ObjectMeta {
        name: meta.name.take(),
        namespace: meta.namespace.take(),
        uid: meta.uid.take(),
        resource_version: meta.resource_version.take(),
        creation_timestamp: meta.creation_timestamp.take(),
        deletion_timestamp: meta.deletion_timestamp.take(),
        ..ObjectMeta::default()
    };
}

fn retain_key(
    map: Option<BTreeMap<String, String>>,
    key: &str,
) -> Option<BTreeMap<String, String>> {
    let (key, value) = map?.remove_entry(key)?;
    Some(BTreeMap::from([(key, value)]))
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
            service_key(last)
                .into_iter()
                .for_each(|key| dirty.mark_deleted_endpoints(key));
            return;
        }
    };
    let key = service_key(new);
    // A slice may change its label; then both Services change.
    if let Some(former) = old.and_then(service_key)
        && Some(&former) != key.as_ref()
    {
        dirty.mark_deleted_endpoints(former);
    }
    if let Some(key) = key {
        dirty.mark_endpoints(key, old, new);
    }
}
