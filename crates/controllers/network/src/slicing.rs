//! EndpointSlices of Services with a selector.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api_semantics::endpoints::{endpoint_conditions, is_endpoint_ready, is_pod_in_endpoints};
use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, controller_reference, labels, pods, split_key, wake,
};

use crate::backends::{self, PodPort};
use crate::slices::{self, Group, SliceTemplate};
use crate::trigger_time::TriggerTimes;

const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Returns the actions for the slices of one Service. `members` are the namespace's pods,
/// `find_node` finds a node by its name, `trigger` is the time of the change that caused the
/// reconcile.
pub fn reconcile_service(
    service: &Service,
    members: &[Arc<Pod>],
    find_node: &dyn Fn(&str) -> Option<Arc<Node>>,
    existing: &[Arc<EndpointSlice>],
    trigger: Option<Timestamp>,
) -> Vec<Action> {
    let Some(selector) = backends::service_selector(service) else {
        return Vec::new();
    };
    // The garbage collector deletes the slices with the Service that owns them.
    if service.is_deleting() {
        return Vec::new();
    }
    let families = list_families(service);
    let publishes_all = publishes_not_ready_addresses(service);
    let mut groups: BTreeMap<(String, Vec<PodPort>), Vec<Endpoint>> = BTreeMap::new();
    for pod in members {
        if !labels::labels_match_map(Some(selector), pod.meta().labels.as_ref())
            // With terminating pods: kube-proxy uses those that still serve if no endpoint is
            // ready.
            || !is_pod_in_endpoints(pod, true)
        {
            continue;
        }
        let node = find_node(pods::node_name(pod));
        // Nothing answers at the address of a pod whose node is deleted, until the garbage
        // collector has deleted the pod. A new node enqueues the Services of its pods.
        if node.is_none() && !publishes_all {
            continue;
        }
        // Without any of the named ports the pod still has an address, which DNS serves: its
        // endpoint goes into a slice without ports.
        let ports = backends::resolve_ports(service, pod);
        for (family, address) in addresses_by_family(pod) {
            if families.contains(&family) {
                let endpoint = build_endpoint(service, pod, address, node.as_deref());
                groups
                    .entry((family, ports.clone()))
                    .or_default()
                    .push(endpoint);
            }
        }
    }
    let groups = groups
        .into_iter()
        .map(|((family, ports), endpoints)| Group {
            family,
            ports: ports.into_iter().map(build_port).collect(),
            endpoints,
        })
        .collect();
    slices::pack_endpoints(
        &slice_template(service, trigger),
        &families,
        groups,
        existing,
    )
}

fn publishes_not_ready_addresses(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|s| s.publish_not_ready_addresses) == Some(true)
}

fn slice_template(service: &Service, trigger: Option<Timestamp>) -> SliceTemplate {
    let mut labels = service.meta().labels.clone().unwrap_or_default();
    labels.insert(slices::SERVICE.to_owned(), service.name().to_owned());
    labels.insert(slices::MANAGED_BY.to_owned(), MANAGER.to_owned());
    // A label of the Service must not contradict its clusterIP: kube-proxy skips slices with this
    // label.
    labels.remove(slices::HEADLESS);
    if backends::is_headless(service) {
        labels.insert(slices::HEADLESS.to_owned(), String::new());
    }
    SliceTemplate {
        prefix: service.name().to_owned(),
        namespace: service.namespace().to_owned(),
        labels,
        annotations: labels::Labels::new(),
        trigger,
        owner: controller_reference(service),
        placeholder: true,
    }
}

fn list_families(service: &Service) -> Vec<String> {
    let spec = service.spec.as_ref();
    let named = spec.and_then(|s| s.ip_families.clone()).unwrap_or_default();
    if !named.is_empty() {
        return named;
    }
    let six = spec
        .and_then(|s| s.cluster_ip.as_deref())
        .is_some_and(|ip| ip.contains(':'));
    vec![if six { "IPv6" } else { "IPv4" }.to_owned()]
}

fn addresses_by_family(pod: &Pod) -> impl Iterator<Item = (String, String)> + use<> {
    backends::list_addresses(pod)
        .into_iter()
        .filter_map(|text| {
            let family = match text.parse::<IpAddr>().ok()? {
                IpAddr::V4(_) => "IPv4",
                IpAddr::V6(_) => "IPv6",
            };
            Some((family.to_owned(), text))
        })
}

fn build_port(port: PodPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name),
        port: Some(port.port),
        protocol: Some(port.protocol),
        app_protocol: port.app_protocol,
    }
}

fn build_endpoint(service: &Service, pod: &Pod, address: String, node: Option<&Node>) -> Endpoint {
    let conditions = endpoint_conditions(service, pod);
    // A zone is known only through the node, so it is absent for a pod whose node is unknown.
    let zone = node.and_then(|n| n.label(ZONE)).map(str::to_owned);
    let node = Some(pods::node_name(pod).to_owned()).filter(|n| !n.is_empty());
    Endpoint {
        addresses: vec![address],
        hints: if is_endpoint_ready(Some(&conditions)) {
            build_hints(service, node.as_deref(), zone.as_deref())
        } else {
            None
        },
        conditions: Some(conditions),
        hostname: backends::endpoint_hostname(pod, service),
        node_name: node,
        target_ref: Some(backends::pod_reference(pod)),
        zone,
        ..Endpoint::default()
    }
}

fn build_hints(service: &Service, node: Option<&str>, zone: Option<&str>) -> Option<EndpointHints> {
    let wanted = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    let zones = zone.map(|name| {
        vec![ForZone {
            name: name.to_owned(),
        }]
    });
    let nodes = node.map(|name| {
        vec![ForNode {
            name: name.to_owned(),
        }]
    });
    match wanted {
        "PreferClose" | "PreferSameZone" if zones.is_some() => Some(EndpointHints {
            for_zones: zones,
            for_nodes: None,
        }),
        // The zone is given as well: without an endpoint on its node, kube-proxy uses one of its
        // zone.
        "PreferSameNode" => Some(EndpointHints {
            for_zones: zones,
            for_nodes: nodes,
        }),
        _ => None,
    }
}

struct EndpointSliceController {
    services: Cache<Service>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    slices: Cache<EndpointSlice>,
    triggers: TriggerTimes,
}

/// Sets up the EndpointSlice controller.
pub fn add_endpoint_slice_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let services = setup
        .informers
        .for_kind::<Service>()
        .index_namespace()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index_namespace()
        .index(pods::BY_NODE, pods::by_node);
    let pods = pods.on_event(backends::on_pod(&queue, &services)).cache();
    let slices = slice_cache(setup, &queue, MANAGER);
    let changed = (queue.clone(), services.clone(), pods.clone());
    let nodes = setup
        .informers
        .for_kind::<Node>()
        .on_event(move |event| on_node(event, &changed.0, &changed.1, &changed.2))
        .cache();
    let controller = EndpointSliceController {
        services,
        pods,
        nodes,
        slices,
        triggers: TriggerTimes::default(),
    };
    setup.add_reconciler("endpointslice-controller", workers, queue, controller);
}

/// Returns the cache of slices, indexed by Service; changes of slices of `manager` enqueue their
/// Service.
pub fn slice_cache(
    setup: &mut Setup,
    queue: &Queue,
    manager: &'static str,
) -> Cache<EndpointSlice> {
    let queue = queue.clone();
    let kind = setup
        .informers
        .for_kind::<EndpointSlice>()
        .index("service", |s: &EndpointSlice| {
            let name = s.label(slices::SERVICE);
            name.map(|n| format!("{}/{n}", s.namespace()))
                .into_iter()
                .collect()
        });
    let kind = kind.on_event(move |event| {
        let slice = event.object();
        if slice.label(slices::MANAGED_BY) == Some(manager)
            && let Some(name) = slice.label(slices::SERVICE)
        {
            queue.add(format!("{}/{name}", slice.namespace()));
        }
    });
    kind.cache()
}

/// Enqueues the Services of the pods on a node that is new or whose zone changed.
fn on_node(event: &Event<Node>, queue: &Queue, services: &Cache<Service>, on_nodes: &Cache<Pod>) {
    let matters = match event {
        // Pods may be known before their node; they have no endpoints until then.
        Event::Applied { old: None, .. } => true,
        Event::Applied {
            old: Some(old),
            new,
        } => old.label(ZONE) != new.label(ZONE),
        // The garbage collector deletes the pods of the node, and their events enqueue the
        // Services.
        Event::Deleted(_) => false,
    };
    // Only the zone of a node stands in endpoints; its heartbeats must not enqueue anything.
    if matters {
        let here = on_nodes.by_index(pods::BY_NODE, event.object().name());
        let keys: BTreeSet<_> = here
            .iter()
            .flat_map(|pod| backends::services_of(pod, services))
            .collect();
        keys.into_iter().for_each(|key| queue.add(key));
    }
}

impl Decide for EndpointSliceController {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(service) = self.services.get(key) else {
            self.triggers.remove(key);
            return Vec::new();
        };
        let ours = |s: &Arc<EndpointSlice>| s.label(slices::MANAGED_BY) == Some(MANAGER);
        let existing: Vec<_> = self
            .slices
            .by_index("service", key)
            .into_iter()
            .filter(ours)
            .collect();
        let members = self.pods.in_namespace(split_key(key).0);
        let trigger = self.triggers.record(key, &service, &members);
        let find_node = |name: &str| self.nodes.get(name);
        reconcile_service(&service, &members, &find_node, &existing, trigger)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use controllers_runtime::NAMESPACE;
    use serde_json::{Value, json};

    fn parse_object<K: serde::de::DeserializeOwned>(tree: Value) -> K {
        serde_json::from_value(tree).unwrap()
    }

    fn make_node(zone: Option<&str>) -> Arc<Node> {
        let labels = zone.map(|zone| json!({ZONE: zone}));
        parse_object(json!({"metadata": {"name": "one", "labels": labels}}))
    }

    fn cluster_caches() -> (Cache<Service>, Cache<Pod>) {
        let services = ["a", "b", "c"].map(|name| {
            parse_object(json!({"metadata": {"name": name, "namespace": "n"}, "spec": {"selector": {"app": name}}}))
        });
        let pods = [("a", "one"), ("b", "two")].map(|(app, node)| {
            parse_object(
                json!({"metadata": {"name": app, "namespace": "n", "labels": {"app": app}},
                "spec": {"nodeName": node, "containers": []}}),
            )
        });
        let services = Cache::with_indexes(
            services.into(),
            vec![(
                NAMESPACE,
                Box::new(|s: &Service| vec![s.namespace().to_owned()]),
            )],
        );
        (
            services,
            Cache::with_indexes(pods.into(), vec![(pods::BY_NODE, Box::new(pods::by_node))]),
        )
    }

    async fn woken_by(event: Event<Node>) -> Vec<String> {
        let (queue, (services, pods)) = (Queue::new(), cluster_caches());
        on_node(&event, &queue, &services, &pods);
        let mut keys = Vec::new();
        while !queue.is_empty() {
            keys.extend(queue.next().await);
        }
        keys
    }

    #[tokio::test]
    async fn node_wakes_only_the_services_of_its_pods() {
        let applied = |old, new| Event::Applied { old, new };
        for (case, event, expect) in [
            (
                "a new node with a zone",
                applied(None, make_node(Some("z"))),
                &["n/a"][..],
            ),
            (
                "a node that changes its zone",
                applied(Some(make_node(Some("y"))), make_node(Some("z"))),
                &["n/a"],
            ),
            (
                "a node that keeps its zone",
                applied(Some(make_node(Some("z"))), make_node(Some("z"))),
                &[],
            ),
            (
                "a new node without a zone",
                applied(None, make_node(None)),
                &["n/a"],
            ),
            (
                "a node that goes",
                Event::Deleted(make_node(Some("z"))),
                &[],
            ),
        ] {
            assert_eq!(woken_by(event).await, expect, "{case}");
        }
    }
}
