//! Endpoints objects of Services with a selector, for clients that do not read EndpointSlices.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_semantics::endpoints::{is_pod_in_endpoints, is_ready_address, publishes_not_ready};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, labels, pods, semantically_equal, split_key, wake,
};

use crate::backends::{self, PodPort};
use crate::slices;
use crate::trigger_time::{TriggerTimes, annotate};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER: &str = "endpoints.kubernetes.io/over-capacity";
// Upstream's limit, above which the annotation says that addresses are missing.
const CAPACITY: usize = 1000;

/// Returns the actions for the Endpoints of one Service. `members` are the namespace's pods;
/// `trigger` is the time of the change that caused the reconcile.
pub fn reconcile_endpoints(
    service: &Service,
    members: &[Arc<Pod>],
    existing: Option<&Endpoints>,
    trigger: Option<Timestamp>,
) -> Vec<Action> {
    let Some(selector) = backends::service_selector(service) else {
        return Vec::new();
    };
    let include_terminating = publishes_not_ready(service);
    let mut groups: BTreeMap<Vec<PodPort>, EndpointSubset> = BTreeMap::new();
    let mut count = 0;
    for pod in members {
        if !labels::labels_match_map(Some(selector), pod.meta().labels.as_ref())
            || !is_pod_in_endpoints(pod, include_terminating)
        {
            continue;
        }
        let ports = backends::resolve_ports(service, pod);
        let declared = service
            .spec
            .as_ref()
            .is_some_and(|s| s.ports.iter().flatten().next().is_some());
        let Some(address) = build_address(service, pod).filter(|_| !(declared && ports.is_empty()))
        else {
            continue;
        };
        count += 1;
        // Endpoints is a single object of limited size. EndpointSlices carry the rest.
        if count > CAPACITY {
            continue;
        }
        let subset = groups.entry(ports).or_default();
        let list = if is_ready_address(service, pod) {
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        list.get_or_insert_default().push(address);
    }
    let subsets: Vec<_> = groups
        .into_iter()
        .map(|(ports, subset)| build_subset(subset, ports))
        .collect();
    let mut wanted = build_endpoints(service, subsets, count > CAPACITY, existing);
    if existing.is_some_and(|old| semantically_equal(old, &wanted)) {
        return Vec::new();
    }
    // After the comparison: the time alone is no reason for a write.
    annotate(&mut wanted.metadata, trigger);
    match existing {
        None => vec![Action::create(&wanted)],
        Some(_) => vec![Action::update(&wanted)],
    }
}

fn build_subset(mut subset: EndpointSubset, ports: Vec<PodPort>) -> EndpointSubset {
    for list in [&mut subset.addresses, &mut subset.not_ready_addresses]
        .into_iter()
        .flatten()
    {
        // Sorted, so that two reconciles of the same pods write the same object.
        list.sort_by(|a, b| a.ip.cmp(&b.ip));
    }
    let port = |p: PodPort| EndpointPort {
        name: Some(p.name).filter(|n| !n.is_empty()),
        port: p.port,
        protocol: Some(p.protocol),
        app_protocol: p.app_protocol,
    };
    subset.ports = Some(ports.into_iter().map(port).collect());
    subset
}

fn build_address(service: &Service, pod: &Pod) -> Option<EndpointAddress> {
    let six = service
        .spec
        .as_ref()
        .and_then(|s| s.ip_families.as_ref()?.first().cloned())
        .as_deref()
        == Some("IPv6");
    let ip = backends::list_addresses(pod)
        .into_iter()
        // An Endpoints object has one family only: the first of the Service.
        .find(|ip| ip.contains(':') == six)?;
    Some(EndpointAddress {
        ip,
        hostname: backends::endpoint_hostname(pod, service),
        node_name: Some(pods::node_name(pod).to_owned()).filter(|n| !n.is_empty()),
        target_ref: Some(backends::pod_reference(pod)),
    })
}

fn build_endpoints(
    service: &Service,
    subsets: Vec<EndpointSubset>,
    over: bool,
    existing: Option<&Endpoints>,
) -> Endpoints {
    let mut labels = service.meta().labels.clone().unwrap_or_default();
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels.remove(slices::HEADLESS);
    if backends::is_headless(service) {
        labels.insert(slices::HEADLESS.to_owned(), String::new());
    }
    // Existing metadata stay, because other clients may have annotated the object.
    let mut metadata = existing.map_or_else(
        || ObjectMeta {
            name: service.meta().name.clone(),
            namespace: service.meta().namespace.clone(),
            ..ObjectMeta::default()
        },
        |old| old.metadata.clone(),
    );
    metadata.labels = Some(labels);
    if over {
        metadata
            .annotations
            .get_or_insert_default()
            .insert(OVER.to_owned(), "truncated".to_owned());
    } else if let Some(notes) = &mut metadata.annotations {
        notes.remove(OVER);
    }
    Endpoints {
        metadata,
        subsets: Some(subsets),
    }
}

struct EndpointsController {
    services: Cache<Service>,
    pods: Cache<Pod>,
    endpoints: Cache<Endpoints>,
    triggers: TriggerTimes,
}

/// Sets up the Endpoints controller.
pub fn add_endpoints_controller(setup: &mut Setup, workers: usize) {
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
        .on_event(backends::on_pod(&queue, &services))
        .cache();
    let endpoints = setup
        .informers
        .for_kind::<Endpoints>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler(
        "endpoint-controller",
        workers,
        queue,
        EndpointsController {
            services,
            pods,
            endpoints,
            triggers: TriggerTimes::default(),
        },
    );
}

impl Decide for EndpointsController {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let existing = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.triggers.remove(key);
            // Endpoints without the label were written by hand and stay.
            let ours = existing.filter(|e| e.label(MANAGED_BY) == Some(MANAGER));
            return ours
                .map(|e| Action::delete(e.as_ref()))
                .into_iter()
                .collect();
        };
        let members = self.pods.in_namespace(split_key(key).0);
        let trigger = self.triggers.record(key, &service, &members);
        reconcile_endpoints(&service, &members, existing.as_deref(), trigger)
    }
}
