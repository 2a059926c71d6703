//! ServiceCIDRs: their condition Ready, and a finalizer that holds the deletion of a range until no
//! cluster IP depends on it.

use std::net::IpAddr;
use std::sync::Arc;

use api_semantics::service_ranges::is_allocatable;
use client::Event;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use serde_json::{Value, json};

use controllers_runtime::{
    Action, Cache, Decide, Meta, Note, Queue, Setup, Target, Verb, Write, object_reference, time,
};

/// Name of the controller in the API, as upstream.
const MANAGER: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// Time between the deletion request and the removal of the finalizer, as upstream: API servers
/// must have seen the request, so that none allocates an address of the range any more.
const GRACE_SECONDS: i64 = 10;

/// A value of the condition Ready.
struct Readiness {
    status: &'static str,
    reason: &'static str,
    message: &'static str,
}

const READY: Readiness = Readiness {
    status: "True",
    reason: "",
    message: "Kubernetes Service CIDR is ready",
};

const TERMINATING: Readiness = Readiness {
    status: "False",
    reason: "Terminating",
    message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
};

/// Returns the actions for one ServiceCIDR. `all` are all ServiceCIDRs, `addresses` all
/// IPAddresses.
pub fn reconcile_service_cidr(
    object: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: &[Arc<IPAddress>],
    now: Timestamp,
) -> Vec<Action> {
    let Some(requested) = &object.metadata.deletion_timestamp else {
        return keep_ready(object, now);
    };
    if has_dependents(object, all, addresses) {
        return set_readiness(object, &TERMINATING, now)
            .into_iter()
            .collect();
    }
    let end = time::seconds_after(requested.0, GRACE_SECONDS);
    if end > now {
        return vec![Action::Requeue(time::duration_until(end, now))];
    }
    remove_finalizer(object).into_iter().collect()
}

/// Adds the finalizer and sets the condition Ready.
fn keep_ready(object: &ServiceCIDR, now: Timestamp) -> Vec<Action> {
    let patch = json!({"metadata": {"uid": object.uid(), "finalizers": [FINALIZER]}});
    // First, so that a range that is ready can't be deleted while it is in use.
    let protect = (!object.has_finalizer(FINALIZER))
        .then(|| Action::strategic(Target::of(object), patch).ignore_absent());
    let failure = Note::warning(
        &object_reference(object),
        "KubernetesServiceCIDRError",
        "The ServiceCIDR Status can not be set to Ready=True",
    );
    let ready = set_readiness(object, &READY, now)
        .map(|action| action.with(|write| write.notes.failure = Some(failure.clone())));
    protect.into_iter().chain(ready).collect()
}

/// Returns the write of the condition Ready, unless the object has the value already.
fn set_readiness(object: &ServiceCIDR, desired: &Readiness, now: Timestamp) -> Option<Action> {
    let conditions = object.status.iter().flat_map(|s| s.conditions.iter());
    let known = conditions.flatten().find(|c| c.type_ == "Ready");
    let is_same = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        c.status == desired.status && c.reason == desired.reason && c.message == desired.message
    };
    if known.is_some_and(is_same) {
        return None;
    }
    let body: Value = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": { "name": object.name(), "uid": object.uid() },
        "status": { "conditions": [{
            "type": "Ready", "status": desired.status, "reason": desired.reason,
            "message": desired.message, "lastTransitionTime": time::api_time(now),
        }] },
    });
    let write = Write::new(Verb::ApplyStatus(MANAGER), Target::of(object), body);
    Some(Action::from(write).ignore_absent())
}

fn remove_finalizer(object: &ServiceCIDR) -> Option<Action> {
    let patch = json!({"metadata": {
        "uid": object.uid(), "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    object
        .has_finalizer(FINALIZER)
        .then(|| Action::strategic(Target::of(object), patch).ignore_absent())
}

/// Returns whether an address that API servers allocated is in a range of this ServiceCIDR only.
fn has_dependents(
    object: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: &[Arc<IPAddress>],
) -> bool {
    let others: Vec<IpNet> = all
        .iter()
        .filter(|other| other.name() != object.name())
        .flat_map(|other| list_ranges(other))
        .collect();
    let own = list_ranges(object);
    // As upstream: an address at the edge of a larger range may be allocated in that range, too.
    let has_parents = own
        .iter()
        .all(|range| others.iter().any(|other| other.contains(range)));
    !has_parents
        && addresses
            .iter()
            .filter_map(|object| parse_allocated_address(object))
            .any(|address| {
                let allocates = |range: &IpNet| is_allocatable(range, address);
                own.iter().any(allocates) && !others.iter().any(allocates)
            })
}

fn list_ranges(object: &ServiceCIDR) -> Vec<IpNet> {
    let cidrs = object.spec.iter().flat_map(|spec| spec.cidrs.iter());
    cidrs
        .flatten()
        .filter_map(|cidr| cidr.parse().ok())
        .collect()
}

/// Returns the address of an object that an API server created for a Service.
fn parse_allocated_address(object: &IPAddress) -> Option<IpAddr> {
    (object.label(MANAGED_BY) == Some(ALLOCATOR))
        .then(|| object.name().parse().ok())
        .flatten()
}

fn ranges_overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// Enqueues the ServiceCIDRs with a range that `selects`.
fn enqueue_selected(queue: &Queue, objects: &Cache<ServiceCIDR>, selects: impl Fn(&IpNet) -> bool) {
    objects
        .list()
        .iter()
        .filter(|object| list_ranges(object).iter().any(&selects))
        .for_each(|object| queue.add(object.key()));
}

struct ServiceCidrs {
    objects: Cache<ServiceCIDR>,
    addresses: Cache<IPAddress>,
}

/// Sets up the ServiceCIDR controller.
pub fn add_service_cidr_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let objects = setup.informers.for_kind::<ServiceCIDR>().cache();
    let (waiting, known) = (queue.clone(), objects.clone());
    setup
        .informers
        .for_kind::<ServiceCIDR>()
        .on_event(move |event| {
            waiting.add(event.object().key());
            // A new range may contain the addresses that hold the deletion of another one.
            if let Event::Applied { old: None, new } = event {
                let own = list_ranges(new);
                enqueue_selected(&waiting, &known, |range| {
                    own.iter().any(|new| ranges_overlap(new, range))
                });
            }
        });
    let (waiting, known) = (queue.clone(), objects.clone());
    let addresses = setup
        .informers
        .for_kind::<IPAddress>()
        .on_event(move |event| {
            let address = match event {
                // The name is the address, so that an update changes nothing here.
                Event::Applied { old: Some(_), .. } => None,
                Event::Applied { old: None, new } => parse_allocated_address(new),
                Event::Deleted(last) => parse_allocated_address(last),
            };
            if let Some(address) = address {
                enqueue_selected(&waiting, &known, |range| is_allocatable(range, address));
            }
        })
        .cache();
    setup.add_reconciler(
        // The name of upstream's service account and role differs from that of the controller.
        "service-cidrs-controller",
        workers,
        queue,
        ServiceCidrs { objects, addresses },
    );
}

impl Decide for ServiceCidrs {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(object) = self.objects.get(key) else {
            return Vec::new();
        };
        // Only a deletion depends on other objects.
        let (all, addresses) = if object.is_deleting() {
            (self.objects.list(), self.addresses.list())
        } else {
            Default::default()
        };
        reconcile_service_cidr(&object, &all, &addresses, now)
    }
}

#[cfg(test)]
mod tests;
