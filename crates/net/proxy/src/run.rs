//! The loop: informers say which Services changed, their rules are computed anew, the difference is applied.
//!
//! Nothing is applied before both informers have the whole state, so that a restart never takes Services away.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use base_task::Tasks;
use base_telemetry::Metrics;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use client::{Client, Event, Informer, ListParams, Store};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node as NodeObject, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::conntrack;
use crate::desired::Desired;
use crate::fragment::{Fragment, fragment};
use crate::health::{Checks, Health, serve_health, serve_metrics};
use crate::local::{Node, node_port_addresses};
use crate::model::Family;
use crate::nft;
use crate::skeleton::{Skeleton, skeleton};

/// Changes that come within this time are applied together.
const GATHER: Duration = Duration::from_millis(10);
const RETRY: Duration = Duration::from_secs(1);
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Those that other proxies, or nobody, should serve.
const NOT_OURS: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";

/// What the proxy is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's name.
    pub node_name: String,
    /// Ranges of pods.
    pub pod_ranges: Vec<IpNet>,
    /// Hide all sources.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: u8,
    /// `primary`, ranges, or nothing for the default.
    pub node_port_addresses: Vec<String>,
    /// Where to serve health checks.
    pub healthz: Option<SocketAddr>,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
}

#[derive(Default)]
struct Dirty {
    services: Mutex<BTreeSet<String>>,
    node: Mutex<bool>,
    wake: Notify,
}

impl Dirty {
    fn service(&self, key: String) {
        self.services.lock().insert(key);
        self.wake.notify_one();
    }

    fn node(&self) {
        *self.node.lock() = true;
        self.wake.notify_one();
    }
}

struct Figures {
    syncs: Counter,
    failures: Counter,
    duration: Histogram,
}

impl Figures {
    fn new(metrics: &Metrics) -> Self {
        Self {
            syncs: metrics.register("kubeproxy_sync_proxy_rules", "Transactions applied", Counter::default()),
            failures: metrics.register(
                "kubeproxy_sync_proxy_rules_nftables_sync_failures",
                "Transactions refused",
                Counter::default(),
            ),
            duration: metrics.register(
                "kubeproxy_sync_proxy_rules_duration_seconds",
                "Time to compute and apply a change",
                Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            ),
        }
    }
}

/// Runs until the group is told to stop. The rules stay.
pub async fn run(client: Client, settings: Settings, tasks: Tasks) -> anyhow::Result<()> {
    nft::check().await.context("rules can't be installed")?;
    let health = Arc::new(Health::default());
    let metrics = Arc::new(Metrics::new());
    let figures = Figures::new(&metrics);
    if let Some(address) = settings.healthz {
        serve_health(address, Arc::clone(&health), &tasks).await?;
    }
    if let Some(address) = settings.metrics {
        serve_metrics(address, metrics, &tasks).await?;
    }
    let dirty = Arc::new(Dirty::default());
    let (services, slices, nodes) = informers(&client, &settings, &dirty, &tasks);
    let shutdown = tasks.shutdown().clone();
    let work = async {
        services.synced().await;
        slices.synced().await;
        nodes.synced().await;
        let checks = Checks::new(tasks.clone());
        let node = Node::default();
        let mut proxy =
            Proxy { settings, services, slices, nodes, node, desired: Desired::default(), checks, figures, health };
        proxy.follow(&dirty).await;
    };
    tokio::select! {
        () = work => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

type Stores = (Store<Service>, Store<EndpointSlice>, Store<NodeObject>);

fn informers(client: &Client, settings: &Settings, dirty: &Arc<Dirty>, tasks: &Tasks) -> Stores {
    let mark = Arc::clone(dirty);
    let services = Informer::new(client.api::<Service>(), ListParams::new().labels(NOT_OURS))
        .on_event(move |event: Event<Service>| mark.service(key(&event.object().metadata)))
        .spawn(tasks);
    let mark = Arc::clone(dirty);
    let slices = Informer::new(client.api::<EndpointSlice>(), ListParams::new().labels(NOT_OURS))
        .index("service", |slice| service_of(slice).into_iter().collect())
        .on_event(move |event: Event<EndpointSlice>| {
            if let Event::Applied { old: Some(old), .. } = &event {
                service_of(old).into_iter().for_each(|key| mark.service(key));
            }
            service_of(event.object()).into_iter().for_each(|key| mark.service(key));
        })
        .spawn(tasks);
    let mark = Arc::clone(dirty);
    let own = ListParams::new().fields(format!("metadata.name={}", settings.node_name));
    let nodes =
        Informer::new(client.api::<NodeObject>(), own).on_event(move |_: Event<NodeObject>| mark.node()).spawn(tasks);
    (services, slices, nodes)
}

fn key(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> String {
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref().unwrap_or_default()))
}

struct Proxy {
    settings: Settings,
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    nodes: Store<NodeObject>,
    node: Node,
    desired: Desired,
    checks: Checks,
    figures: Figures,
    health: Arc<Health>,
}

impl Proxy {
    async fn follow(&mut self, dirty: &Dirty) {
        let mut whole = true;
        let mut removal = String::new();
        let mut addresses = Vec::new();
        loop {
            if !whole {
                dirty.wake.notified().await;
                tokio::time::sleep(GATHER).await;
            }
            let began = Instant::now();
            let node_changed = std::mem::take(&mut *dirty.node.lock());
            if whole || node_changed {
                let (node, now) = self.look_at_node();
                whole |= node != self.node || now != addresses;
                (self.node, addresses) = (node, now);
            }
            let keys = std::mem::take(&mut *dirty.services.lock());
            let applied = if whole { self.install(&addresses).await } else { self.update(&keys, &mut removal).await };
            match applied {
                Ok(()) => {
                    whole = false;
                    self.figures.syncs.inc();
                    self.figures.duration.observe(began.elapsed().as_secs_f64());
                    self.health.good();
                }
                Err(error) => {
                    tracing::error!(%error, "rules could not be applied; all of them will be installed anew");
                    whole = true;
                    removal.clear();
                    self.figures.failures.inc();
                    self.health.bad();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    fn look_at_node(&self) -> (Node, Vec<IpAddr>) {
        let object = self.nodes.list().into_iter().next();
        let label = |name: &str| object.as_ref()?.metadata.labels.as_ref()?.get(name).cloned();
        let node = Node {
            name: self.settings.node_name.clone(),
            zone: label("topology.kubernetes.io/zone"),
            families: families(),
            pod_ranges: self.settings.pod_ranges.clone(),
            masquerade_all: self.settings.masquerade_all,
        };
        let listed = object.as_ref().and_then(|o| o.status.as_ref()).and_then(|s| s.addresses.as_deref());
        let own: Vec<IpAddr> = listed
            .unwrap_or_default()
            .iter()
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok())
            .collect();
        (node, node_port_addresses(&self.settings.node_port_addresses, &own))
    }

    fn compute(&self, key: &str) -> Fragment {
        let Some(service) = self.services.get(key) else { return Fragment::default() };
        fragment(&service, &self.slices.by_index("service", key), &self.node)
    }

    /// Everything anew, in one transaction: packets see the old rules or the new ones.
    async fn install(&mut self, addresses: &[IpAddr]) -> Result<(), nft::Error> {
        let mut desired = Desired::default();
        let mut fronts = BTreeMap::new();
        for service in self.services.list() {
            let key = key(&service.metadata);
            let now = self.compute(&key);
            fronts.extend(now.udp.clone());
            desired.set(&key, now);
        }
        let options =
            Skeleton { masquerade_bit: self.settings.masquerade_bit, node_port_addresses: addresses.to_vec() };
        let mut commands: String = self.node.families.iter().map(|family| skeleton(*family, &options)).collect();
        commands += &desired.install();
        nft::apply(&commands).await?;
        let names: Vec<String> = self.desired.fragments().map(|(name, _)| name.clone()).collect();
        for name in names.iter().filter(|name| desired.fragment(name).is_none()) {
            self.checks.set(name, None).await;
        }
        for (name, fragment) in desired.fragments() {
            self.checks.set(name, fragment.health).await;
        }
        tracing::info!(services = desired.fragments().count(), bytes = commands.len(), "rules installed");
        self.desired = desired;
        if !fronts.is_empty() {
            conntrack::forget(conntrack::astray(&conntrack::remembered().await, &fronts)).await;
        }
        Ok(())
    }

    /// Only what changed. What is not used any more goes in a second transaction, with the next one if that fails.
    async fn update(&mut self, keys: &BTreeSet<String>, removal: &mut String) -> Result<(), nft::Error> {
        let mut change = String::new();
        let mut stale = Vec::new();
        let mut checks = Vec::new();
        let mut unused = String::new();
        for key in keys {
            let now = self.compute(key);
            let before = self.desired.fragment(key).cloned().unwrap_or_default();
            if now == before {
                continue;
            }
            stale.extend(conntrack::stale(&before.udp, &now.udp));
            checks.push((key, now.health));
            let commands = self.desired.set(key, now);
            change += &commands.change;
            unused += &commands.removal;
        }
        nft::apply(&change).await?;
        if !change.is_empty() {
            tracing::debug!(services = checks.len(), bytes = change.len(), "rules changed");
        }
        for (key, health) in checks {
            self.checks.set(key, health).await;
        }
        conntrack::forget(stale).await;
        if !unused.is_empty() || !removal.is_empty() {
            removal.push_str(&unused);
            nft::apply(removal).await?;
            removal.clear();
        }
        Ok(())
    }
}

/// The families that the kernel has.
fn families() -> Vec<Family> {
    let v6 = std::path::Path::new("/proc/net/if_inet6").exists();
    if v6 { vec![Family::V4, Family::V6] } else { vec![Family::V4] }
}
