//! Follows the cluster: computes the routing table after changes, and the endpoints of its
//! backends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base_task::Tasks;
use client::{Client, Event, Informer, ListParams, ObjectExt, Store, WorkQueue};
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, NodeSpec, NodeStatus, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::address::{Address, read_addresses};
use crate::backend::{BackendSet, NextBackends, resolve_endpoints};
use crate::claims::HostOwners;
use crate::compile::{Compiled, Context, Objects, OwnTable, RefusedIngress, StatusChange, compile};
use crate::crds::{GATEWAY_CLASSES, GATEWAYS, GatewayKinds, HTTP_ROUTES, REFERENCE_GRANTS};
use crate::deletion_delay::DeletionDelay;
use crate::endpoint_budget::EndpointBudget;
use crate::endpoint_policy::EndpointPolicy;
use crate::gateway_services::{GatewayServices, ServiceChange};
use crate::infrastructure::AllowedAnnotations;
use crate::listener_ports::{ListenerPortRange, Ports};
use crate::metrics::Metrics;
use crate::port_range::PortRange;
use crate::secrets::SecretWatches;
use crate::table::RoutingTable;

/// Shortest time between two computations of the table.
const COLLECT: Duration = Duration::from_millis(50);
/// Time for which a new kind of the Gateway API is waited for before the table is computed.
const KIND_SYNC: Duration = Duration::from_secs(10);
/// Label of slices with the name of their Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// ConfigMap with the owners of hosts, and its key.
pub(crate) const OWNERS: &str = "ironclad-gateway-hosts";
pub(crate) const OWNERS_KEY: &str = "owners";

/// Settings of the controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerSettings {
    pub(crate) controller: String,
    pub(crate) ports: Ports,
    /// Service (`namespace/name`) whose addresses are those of the gateway.
    pub(crate) publish_service: Option<String>,
    /// Ports for Gateways with addresses of their own.
    pub(crate) gateway_ports: Option<PortRange>,
    /// Ports that their listeners may have besides `ports`.
    pub(crate) other_listener_ports: Vec<ListenerPortRange>,
    /// Annotations that the Services of such Gateways get.
    pub(crate) gateway_annotations: AllowedAnnotations,
    /// Addresses in the place of those of a Service.
    pub(crate) publish_addresses: Vec<String>,
    /// Ranges of endpoints; empty for those of the pods of Nodes.
    pub(crate) endpoint_ranges: Vec<IpNet>,
    /// Namespace of the record of owners.
    pub(crate) namespace: String,
}

/// Results for the writer of statuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) statuses: Vec<StatusChange>,
    /// Changes of the Services of Gateways.
    pub(crate) services: Vec<ServiceChange>,
    /// Served versions of the kinds of the Gateway API, by plural name.
    pub(crate) versions: HashMap<&'static str, &'static str>,
    pub(crate) refused: Vec<RefusedIngress>,
    /// Record of the owners of hosts, and whether it differs from the stored one.
    pub(crate) owners: String,
    pub(crate) owners_changed: bool,
}

/// Stores of the kinds that every cluster has.
#[derive(Clone)]
struct Stores {
    ingresses: Store<Ingress>,
    classes: Store<IngressClass>,
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    namespaces: Store<Namespace>,
    record: Store<ConfigMap>,
    /// Absent if the command line has the ranges of endpoints.
    nodes: Option<Store<Node>>,
}

/// The controller.
pub(crate) struct Controller {
    settings: ControllerSettings,
    stores: Stores,
    kinds: GatewayKinds,
    secrets: SecretWatches,
    changed: Arc<Notify>,
    /// Services whose endpoints changed.
    dirty: WorkQueue<String>,
    endpoints: Arc<EndpointWriter>,
    owners: HostOwners,
    table: Arc<ArcSwap<RoutingTable>>,
    own_tables: watch::Sender<Vec<OwnTable>>,
    findings: watch::Sender<Arc<Findings>>,
    deletions: DeletionDelay,
    metrics: Arc<Metrics>,
    ready: Arc<AtomicBool>,
}

impl Controller {
    /// Starts the informers.
    pub(crate) fn start(
        client: &Client,
        tasks: &Tasks,
        settings: ControllerSettings,
        table: Arc<ArcSwap<RoutingTable>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let changed = Arc::new(Notify::new());
        let dirty = WorkQueue::new();
        let stores = Stores::start(client, tasks, &settings, &changed, &dirty);
        let policy = EndpointPolicy::of_ranges(&settings.endpoint_ranges);
        Self {
            endpoints: Arc::new(EndpointWriter {
                backends: ArcSwap::default(),
                policy: ArcSwap::from_pointee(policy),
                stores: stores.clone(),
                changed: changed.clone(),
                writing: Mutex::default(),
            }),
            settings,
            stores,
            kinds: GatewayKinds::start(client, tasks, changed.clone()),
            secrets: SecretWatches::new(client.clone(), tasks.clone(), changed.clone()),
            changed,
            dirty,
            owners: HostOwners::default(),
            table,
            own_tables: watch::Sender::default(),
            findings: watch::Sender::new(Arc::default()),
            deletions: DeletionDelay::default(),
            metrics,
            ready: Arc::default(),
        }
    }

    /// Returns the results for the writer of statuses.
    pub(crate) fn subscribe_findings(&self) -> watch::Receiver<Arc<Findings>> {
        self.findings.subscribe()
    }

    /// Returns the tables of Gateways with addresses of their own.
    pub(crate) fn subscribe_own_tables(&self) -> watch::Receiver<Vec<OwnTable>> {
        self.own_tables.subscribe()
    }

    /// Returns a flag that is true once the first table is served.
    pub(crate) fn readiness(&self) -> Arc<AtomicBool> {
        self.ready.clone()
    }

    /// Computes tables until shutdown.
    pub(crate) async fn run_controller(mut self, tasks: Tasks) {
        let shutdown = tasks.shutdown().clone();
        let synced = async {
            self.stores.wait_until_synced().await;
            // The first table needs the objects of all kinds: otherwise a host could get an owner
            // that is not the oldest.
            self.kinds.wait_until_synced().await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = synced => tracing::info!("informers synced"),
        }
        self.update_policy();
        let updates = update_endpoints(self.dirty.clone(), self.endpoints.clone());
        let (stop, dirty) = (shutdown.clone(), self.dirty.clone());
        tasks.spawn_critical("endpoints", async move {
            tokio::select! {
                () = stop.cancelled() => dirty.close(),
                () = updates => {}
            }
        });
        loop {
            // Waits for the objects of a kind that starts again, so that its routes are served
            // without a pause. The wait is limited, because a kind that can't be listed must not
            // stop the others.
            if self.kinds.follow_definitions() {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = timeout(KIND_SYNC, self.kinds.wait_until_synced()) => {}
                }
            }
            let began = Instant::now();
            let deletion = base_task::blocking(|| self.compute_table());
            // With constant changes, computations take a fifth of a processor at most.
            let pause = COLLECT.max(began.elapsed() * 4);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.changed.notified() => {}
                () = wait_until(deletion) => {}
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Computes the table. Returns the time at which a Service of a Gateway is to be deleted.
    fn compute_table(&mut self) -> Option<Instant> {
        let objects = self.stores.collect_objects(&self.kinds);
        let certificates = self.secrets.certificates();
        let stored = self.stores.read_owners();
        let mut before = HostOwners::decode(&stored);
        before.add_missing(&self.owners);
        let services = &self.stores.services;
        let of_gateways = self.find_gateway_services();
        let mut backends = NextBackends::new(self.endpoints.backends.load_full());
        let compiled = compile(
            objects,
            &Context {
                controller: &self.settings.controller,
                ports: self.settings.ports,
                addresses: &self.list_addresses(),
                services: &of_gateways,
                certificates: &certificates,
                find_service: &|key| services.get(key),
                owners: &before,
                now: &Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            },
            &mut backends,
        );
        let Compiled {
            table,
            own_tables,
            mut services,
            owners,
            secrets,
            statuses,
            refused,
        } = compiled;
        self.update_policy();
        self.endpoints.replace_backends(backends.finish());
        let of_own = own_tables.iter().map(|own| own.table.rule_count());
        let rules = table.rule_count() + of_own.sum::<usize>();
        self.metrics.rules.store(rules, Ordering::Relaxed);
        self.metrics.computations.fetch_add(1, Ordering::Relaxed);
        self.table.store(Arc::new(table));
        self.own_tables.send_replace(own_tables);
        self.owners = owners;
        self.secrets.watch_only(&secrets);
        let deletion = self.deletions.remove_early(&mut services, Instant::now());
        let owners = self.owners.encode();
        self.findings.send_replace(Arc::new(Findings {
            statuses,
            services,
            versions: self.kinds.versions(),
            refused,
            owners_changed: owners != stored,
            owners,
        }));
        self.ready.store(true, Ordering::Release);
        deletion
    }

    /// Computes the allowed addresses of endpoints from the Nodes.
    fn update_policy(&self) {
        let Some(nodes) = &self.stores.nodes else {
            return;
        };
        let policy = EndpointPolicy::of_nodes(&nodes.list());
        let known = self.endpoints.policy.load();
        if policy == **known {
            return;
        }
        let was_unset = **known == EndpointPolicy::default();
        if !policy.is_limited() && (known.is_limited() || was_unset) {
            tracing::warn!(
                "no Node has a range of pods: endpoints may have any address but those of nodes; \
                 --endpoint-range limits them"
            );
        }
        self.endpoints.policy.store(Arc::new(policy));
    }

    fn find_gateway_services(&self) -> GatewayServices {
        let ControllerSettings {
            publish_service,
            gateway_ports,
            other_listener_ports,
            gateway_annotations,
            ..
        } = &self.settings;
        let (key, services) = (publish_service.as_deref(), &self.stores.services);
        let ports = (*gateway_ports, other_listener_ports.as_slice());
        GatewayServices::read(key, gateway_annotations, ports, |key| services.get(key))
    }

    fn list_addresses(&self) -> Vec<Address> {
        let fixed = self.settings.publish_addresses.iter().map(|address| {
            match address.parse::<std::net::IpAddr>() {
                Ok(ip) => Address::Ip(ip.to_string()),
                Err(_) => Address::Hostname(address.clone()),
            }
        });
        let key = self.settings.publish_service.as_deref();
        let service = key.and_then(|key| self.stores.services.get(key));
        fixed
            .chain(service.iter().flat_map(|service| read_addresses(service)))
            .collect()
    }
}

impl Stores {
    fn start(
        client: &Client,
        tasks: &Tasks,
        settings: &ControllerSettings,
        changed: &Arc<Notify>,
        dirty: &WorkQueue<String>,
    ) -> Self {
        let notify = || {
            let changed = changed.clone();
            move || changed.notify_one()
        };
        let (ingress, class, service, namespace) = (notify(), notify(), notify(), notify());
        let (owners, node) = (notify(), notify());
        let by_name = ListParams::new().with_fields(format!("metadata.name={OWNERS}"));
        let record = client.namespaced::<ConfigMap>(&settings.namespace);
        let (of_service, of_slice) = (dirty.clone(), dirty.clone());
        let own = settings.publish_service.as_deref();
        let own = own.and_then(|key| Some(key.split_once('/')?.0.to_owned()));
        let services = Informer::new(client.api::<Service>(), ListParams::new())
            .transform(move |service: &mut Service| {
                // Services of Gateways may get annotations of the gateway's, and keep their own.
                if service.metadata.namespace != own {
                    service.metadata.annotations = None;
                }
            })
            .on_event(move |event: Event<Service>| {
                of_service.add(event.object().key());
                service();
            });
        let slices = Informer::new(client.api::<EndpointSlice>(), ListParams::new())
            .transform(|slice: &mut EndpointSlice| slice.metadata.annotations = None)
            .index("service", |slice| service_key(slice).into_iter().collect())
            .on_event(move |event: Event<EndpointSlice>| {
                // A slice can be moved to another Service by its label.
                if let Event::Applied { old: Some(old), .. } = &event {
                    service_key(old)
                        .into_iter()
                        .for_each(|key| of_slice.add(key));
                }
                let key = service_key(event.object());
                key.into_iter().for_each(|key| of_slice.add(key));
            });
        Self {
            ingresses: Informer::new(client.api::<Ingress>(), ListParams::new())
                .on_event(move |_| ingress())
                .spawn(tasks),
            classes: Informer::new(client.api::<IngressClass>(), ListParams::new())
                .on_event(move |_| class())
                .spawn(tasks),
            services: services.spawn(tasks),
            slices: slices.spawn(tasks),
            namespaces: Informer::new(client.api::<Namespace>(), ListParams::new())
                .transform(|namespace: &mut Namespace| namespace.metadata.annotations = None)
                .on_event(move |_| namespace())
                .spawn(tasks),
            record: Informer::new(record, by_name)
                .on_event(move |_| owners())
                .spawn(tasks),
            nodes: settings
                .endpoint_ranges
                .is_empty()
                .then(|| watch_nodes(client, tasks, node)),
        }
    }

    async fn wait_until_synced(&self) {
        self.ingresses.wait_until_synced().await;
        self.classes.wait_until_synced().await;
        self.services.wait_until_synced().await;
        self.slices.wait_until_synced().await;
        self.namespaces.wait_until_synced().await;
        self.record.wait_until_synced().await;
        if let Some(nodes) = &self.nodes {
            nodes.wait_until_synced().await;
        }
    }

    /// Returns the record of the owners of hosts; empty if there is none.
    fn read_owners(&self) -> String {
        let record = self.record.list();
        let data = record.first().and_then(|record| record.data.as_ref());
        let owners = data.and_then(|data| data.get(OWNERS_KEY));
        owners.cloned().unwrap_or_default()
    }

    fn collect_objects(&self, kinds: &GatewayKinds) -> Objects {
        // First: objects may arrive meanwhile.
        let are_complete = kinds.have_synced();
        let labels = self.namespaces.list().into_iter().map(|namespace| {
            let labels = namespace.metadata.labels.clone().unwrap_or_default();
            (namespace.name().to_owned(), labels)
        });
        Objects {
            ingresses: self.ingresses.list(),
            ingress_classes: self.classes.list(),
            gateway_classes: kinds.list_objects(GATEWAY_CLASSES),
            gateways: kinds.list_objects(GATEWAYS),
            routes: kinds.list_objects(HTTP_ROUTES),
            grants: kinds.list_objects(REFERENCE_GRANTS),
            tls_policies: kinds.list_tls_policies(),
            labels: labels.collect(),
            are_complete,
        }
    }
}

/// Starts an informer of Nodes, which calls `changed` if addresses or ranges of pods do.
fn watch_nodes(
    client: &Client,
    tasks: &Tasks,
    changed: impl Fn() + Send + Sync + 'static,
) -> Store<Node> {
    let notify = move |event: Event<Node>| {
        // Most changes of Nodes are heartbeats.
        let is_same = match &event {
            Event::Applied { old, new } => {
                old.as_ref().is_some_and(|old| has_same_addresses(old, new))
            }
            Event::Deleted(_) => false,
        };
        if !is_same {
            changed();
        }
    };
    Informer::new(client.api::<Node>(), ListParams::new())
        .transform(keep_addresses)
        .on_event(notify)
        .spawn(tasks)
}

/// Removes all but the addresses of a Node and the ranges of its pods.
fn keep_addresses(node: &mut Node) {
    node.metadata.annotations = None;
    node.metadata.labels = None;
    node.spec = Some(NodeSpec {
        pod_cidrs: node.spec.take().and_then(|spec| spec.pod_cidrs),
        ..NodeSpec::default()
    });
    node.status = Some(NodeStatus {
        addresses: node.status.take().and_then(|status| status.addresses),
        ..NodeStatus::default()
    });
}

fn has_same_addresses(old: &Node, new: &Node) -> bool {
    old.spec == new.spec && old.status == new.status
}

fn service_key(slice: &EndpointSlice) -> Option<String> {
    let service = slice.label(SERVICE_LABEL)?;
    Some(format!("{}/{service}", slice.namespace()))
}

async fn wait_until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn update_endpoints(dirty: WorkQueue<String>, endpoints: Arc<EndpointWriter>) {
    while let Some(key) = dirty.next().await {
        base_task::blocking(|| endpoints.refresh_service(&key));
        dirty.done(&key);
    }
}

/// Sets the endpoints of backends, after changes of slices and for new tables.
struct EndpointWriter {
    /// Backends of the last table.
    backends: ArcSwap<BackendSet>,
    /// Addresses that endpoints may have.
    policy: ArcSwap<EndpointPolicy>,
    stores: Stores,
    /// Notified if endpoints that had no room may have some.
    changed: Arc<Notify>,
    /// Locked for one Service at a time: slices that were read earlier must not be written later.
    /// The computation of a table, which tenants can make long, holds no lock.
    writing: Mutex<EndpointBudget>,
}

impl EndpointWriter {
    /// Takes the backends of a new table, which is not served yet, and sets their endpoints.
    fn replace_backends(&self, backends: BackendSet) {
        let backends = Arc::new(backends);
        // First, so that changes of slices from now on reach the new backends.
        self.backends.store(backends.clone());
        self.writing.lock().retain_services(&backends);
        for key in backends.service_keys() {
            self.refresh_service(key);
        }
    }

    /// Sets the endpoints of the backends of a Service.
    fn refresh_service(&self, service_key: &str) {
        let mut budget = self.writing.lock();
        let backends = self.backends.load();
        if backends.list_backends(service_key).next().is_none() {
            return;
        }
        let policy = self.policy.load();
        let service = self.stores.services.get(service_key);
        let slices = self.stores.slices.by_index("service", service_key);
        let has_room = budget.set_endpoints(&backends, service_key, |port| {
            resolve_endpoints(service.as_deref(), &slices, port, &policy)
        });
        if has_room {
            self.changed.notify_one();
        }
    }
}
