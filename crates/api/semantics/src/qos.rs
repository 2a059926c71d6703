//! The QoS class of a pod.

use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use serde_json::Value;

use crate::resources::ResourceList;
use crate::tree::{read_list, read_requirements};

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
    let spec = pod.spec.as_ref();
    // Ephemeral containers cannot have resources, so they have no influence.
    let containers = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    });
    compute_class(
        spec.and_then(|spec| spec.resources.as_ref()),
        containers.map(|container| container.resources.as_ref()),
    )
}

/// Returns the class of the spec of a pod that is a JSON tree, like [`compute_pod_qos`].
pub fn compute_tree_qos(pod: &Value) -> &'static str {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let level = read_requirements(spec.get("resources"));
    let containers: Vec<Option<ResourceRequirements>> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|field| read_list(spec, field))
        .map(|container| read_requirements(container.get("resources")))
        .collect();
    compute_class(level.as_ref(), containers.iter().map(Option::as_ref))
}

fn compute_class<'a>(
    level: Option<&ResourceRequirements>,
    containers: impl Iterator<Item = Option<&'a ResourceRequirements>>,
) -> &'static str {
    let mut sums = Sums::default();
    match level {
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
        None => containers.for_each(|resources| sums.add_resources(resources, true)),
    }
    sums.class()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn tree_has_the_class_of_the_typed_pod() {
        let [cpu, both] = [json!({"cpu": "1"}), json!({"cpu": "1", "memory": "1Gi"})];
        let container = |requests: &Value, limits: &Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let (none, full) = (json!({"name": "c"}), container(&both, &both));
        for (spec, class) in [
            (json!({"containers": []}), "BestEffort"),
            (json!({"containers": [none]}), "BestEffort"),
            (
                json!({"containers": [container(&json!({"cpu": "0"}), &json!({}))]}),
                "BestEffort",
            ),
            (
                json!({"containers": [container(&cpu, &json!({}))]}),
                "Burstable",
            ),
            (json!({"containers": [container(&cpu, &cpu)]}), "Burstable"),
            (json!({"containers": [full]}), "Guaranteed"),
            (json!({"containers": [full, none]}), "Burstable"),
            (
                json!({"containers": [full], "initContainers": [none]}),
                "Burstable",
            ),
            (
                json!({"containers": [full], "initContainers": [full]}),
                "Guaranteed",
            ),
            (
                json!({"containers": [full], "ephemeralContainers": [none]}),
                "Guaranteed",
            ),
            (
                json!({"containers": [full], "resources": {"requests": cpu}}),
                "Burstable",
            ),
            (
                json!({"containers": [none], "resources": {"requests": both, "limits": both}}),
                "Guaranteed",
            ),
            (
                json!({"containers": [none], "resources": {"requests": cpu, "limits": cpu}}),
                "Burstable",
            ),
            (json!({"containers": [full], "resources": {}}), "BestEffort"),
        ] {
            let tree = json!({"spec": spec});
            let typed: Pod = serde_json::from_value(tree.clone()).unwrap();
            assert_eq!(compute_pod_qos(&typed), class, "typed, {spec}");
            assert_eq!(compute_tree_qos(&tree), class, "tree, {spec}");
        }
        assert_eq!(compute_tree_qos(&json!({})), "BestEffort");
    }
}
