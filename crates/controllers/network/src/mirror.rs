//! EndpointSlices that mirror hand-written Endpoints of Services without a selector.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, controller_reference, wake};

use crate::slices::{self, Group, SliceTemplate};
use crate::slicing::slice_cache;
use crate::trigger_time::TRIGGER_TIME;

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the actions for the mirror of one Endpoints object.
pub fn reconcile_mirror(
    service: Option<&Service>,
    endpoints: Option<&Endpoints>,
    existing: &[Arc<EndpointSlice>],
) -> Vec<Action> {
    let wanted = endpoints.filter(|e| is_mirrored(service, e));
    let Some(endpoints) = wanted else {
        return existing
            .iter()
            .map(|s| Action::delete(s.as_ref()))
            .collect();
    };
    let groups = endpoints
        .subsets
        .iter()
        .flatten()
        .flat_map(group_subset)
        .collect();
    slices::pack_endpoints(&slice_template(endpoints), &[], groups, existing)
}

fn is_mirrored(service: Option<&Service>, endpoints: &Endpoints) -> bool {
    let free = service.is_some_and(|s| {
        s.spec
            .as_ref()
            .is_none_or(|s| s.selector.as_ref().is_none_or(|m| m.is_empty()))
    });
    // Endpoints with a leader annotation are locks of old leader elections, not endpoints.
    free && !endpoints.is_deleting()
        && endpoints.label(SKIP) != Some("true")
        && endpoints.annotation(LEADER).is_none()
}

fn slice_template(endpoints: &Endpoints) -> SliceTemplate {
    let mut labels = endpoints.meta().labels.clone().unwrap_or_default();
    labels.insert(slices::SERVICE.to_owned(), endpoints.name().to_owned());
    labels.insert(slices::MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.meta().annotations.clone().unwrap_or_default();
    // The annotation holds the whole Endpoints object; copying it would double every slice.
    annotations.remove(APPLIED);
    // It is the time of a change of pods, which has not caused that of the Endpoints.
    annotations.remove(TRIGGER_TIME);
    SliceTemplate {
        prefix: endpoints.name().to_owned(),
        namespace: endpoints.namespace().to_owned(),
        labels,
        annotations,
        trigger: None,
        owner: controller_reference(endpoints),
        placeholder: false,
    }
}

/// Splits a subset into groups, one per family.
fn group_subset(subset: &EndpointSubset) -> Vec<Group> {
    let port = |p: &k8s_openapi::api::core::v1::EndpointPort| EndpointPort {
        name: Some(p.name.clone().unwrap_or_default()),
        port: Some(p.port),
        protocol: Some(p.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: p.app_protocol.clone(),
    };
    let ports: Vec<_> = subset.ports.iter().flatten().map(port).collect();
    let ready = subset.addresses.iter().flatten().map(|a| (a, true));
    let unready = subset
        .not_ready_addresses
        .iter()
        .flatten()
        .map(|a| (a, false));
    let all: Vec<_> = ready.chain(unready).collect();
    ["IPv4", "IPv6"]
        .into_iter()
        .filter_map(|family| {
            // A slice has one address family, a subset may mix them.
            let six = family == "IPv6";
            let inside = all
                .iter()
                .filter(|(a, _)| a.ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6() == six));
            let endpoints: Vec<_> = inside
                .map(|(a, ready)| mirror_endpoint(a, *ready))
                .collect();
            (!endpoints.is_empty()).then(|| Group {
                family: family.to_owned(),
                ports: ports.clone(),
                endpoints,
            })
        })
        .collect()
}

fn mirror_endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            // Endpoints do not say whether an address that is not ready still serves.
            serving: None,
            terminating: None,
        }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

struct Mirroring {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    slices: Cache<EndpointSlice>,
}

/// Sets up the mirroring controller.
pub fn add_endpoint_slice_mirroring(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let services = setup
        .informers
        .for_kind::<Service>()
        .index_namespace()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let endpoints = setup
        .informers
        .for_kind::<Endpoints>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let slices = slice_cache(setup, &queue, MANAGER);
    setup.add_reconciler(
        "endpointslicemirroring-controller",
        workers,
        queue,
        Mirroring {
            services,
            endpoints,
            slices,
        },
    );
}

impl Decide for Mirroring {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let ours = |s: &Arc<EndpointSlice>| s.label(slices::MANAGED_BY) == Some(MANAGER);
        let existing: Vec<_> = self
            .slices
            .by_index("service", key)
            .into_iter()
            .filter(ours)
            .collect();
        reconcile_mirror(
            self.services.get(key).as_deref(),
            self.endpoints.get(key).as_deref(),
            &existing,
        )
    }
}
