//! The QoS class of a pod.

use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use serde_json::Value;

use crate::resources::ResourceList;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// Returns the class of the status or, if there is none, that of the spec.
pub fn pod_qos(pod: &Pod) -> &str {
    // The class of a pod never changes, as its cgroup depends on it. The status also holds after a
    // resize of the spec.
    let status = pod.status.as_ref();
    let class = status.and_then(|status| status.qos_class.as_deref());
    class
        .filter(|class| !class.is_empty())
        .unwrap_or_else(|| compute_pod_qos(pod))
}

/// Returns the class of a pod's spec: by the pod-level resources if there are any, or else by those
/// of all containers. Requests must be defaulted.
pub fn compute_pod_qos(pod: &Pod) -> &'static str {
    let mut sums = Sums::default();
    match pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()) {
        // Resources of the whole pod replace those of its containers (KEP-2837).
        Some(level) => {
            // Guaranteed needs limits for both resources at pod level, but only if there are any
            // limits.
            let has_limits = level
                .limits
                .as_ref()
                .is_some_and(|limits| !limits.is_empty());
            sums.add_resources(Some(level), has_limits);
        }
        None => {
            // Ephemeral containers cannot have resources, so they have no influence.
            let containers = pod.spec.iter().flat_map(|spec| {
                let init = spec.init_containers.iter().flatten();
                spec.containers.iter().chain(init)
            });
            containers.for_each(|container| sums.add_resources(container.resources.as_ref(), true));
        }
    }
    sums.class()
}

/// Returns the class of the spec of a pod that is a JSON tree, like [`compute_pod_qos`].
pub fn compute_tree_qos(pod: &Value) -> &'static str {
    compute_pod_qos(&crate::tree::pod(pod))
}

/// Sums of CPU and memory; zero counts as absent.
#[derive(Default)]
struct Sums {
    requests: [Option<Quantity>; 2],
    limits: [Option<Quantity>; 2],
    is_unlimited: bool,
}

impl Sums {
    /// Adds requests and limits. If `needs_limits`, the absence of one excludes Guaranteed.
    fn add_resources(&mut self, resources: Option<&ResourceRequirements>, needs_limits: bool) {
        let requests = ResourceList::new(resources.and_then(|r| r.requests.as_ref()));
        let limits = ResourceList::new(resources.and_then(|r| r.limits.as_ref()));
        for (at, name) in COMPUTE.into_iter().enumerate() {
            let amount = |list: &ResourceList<'_>| {
                list.get(name).filter(|q| !q.is_zero() && !q.is_negative())
            };
            let (request, limit) = (amount(&requests), amount(&limits));
            self.is_unlimited |= needs_limits && limit.is_none();
            add_amount(&mut self.requests[at], request);
            add_amount(&mut self.limits[at], limit);
        }
    }

    fn class(&self) -> &'static str {
        if self.requests == [None; 2] && self.limits == [None; 2] {
            "BestEffort"
        // Requests default to limits, so a pod with limits only is Guaranteed.
        } else if !self.is_unlimited && self.requests == self.limits {
            "Guaranteed"
        } else {
            "Burstable"
        }
    }
}

fn add_amount(sum: &mut Option<Quantity>, amount: Option<Quantity>) {
    *sum = match (*sum, amount) {
        (Some(sum), Some(amount)) => Some(sum.plus(amount)),
        (sum, amount) => sum.or(amount),
    };
}
