//! Whether the node takes a pod that was bound to it.

use crate::context::Node;
use crate::make::security;
use crate::pod::spec::{self, Role};
use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;

/// Why not: reason and message of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// None if the pod may run here.
pub(crate) fn admit(node: &Node, pod: &Pod) -> Option<Refusal> {
    if let Some(name) = security::forbidden_sysctl(pod, &node.settings.unsafe_sysctls) {
        let message = format!("forbidden sysctl: {name:?} not allowlisted");
        return Some(Refusal { reason: "SysctlForbidden".into(), message });
    }
    let labels_differ = spec::spec(pod).os.as_ref().is_some_and(|os| os.name != "linux");
    if labels_differ {
        let message = "Failed to admit pod as the OS field doesn't match node OS".into();
        return Some(Refusal { reason: "PodOSNotSupported".into(), message });
    }
    let (count, used) = node.workers.requested();
    let pods = node.allocatable.get("pods").map_or(i64::MAX, |q| q.value());
    if i64::try_from(count).unwrap_or(i64::MAX) >= pods {
        return Some(out_of("pods", 1, i64::try_from(count).unwrap_or(i64::MAX), pods));
    }
    requests(pod).into_iter().filter(|(name, _)| counted(&node.allocatable, name)).find_map(|(name, asked)| {
        let capacity =
            node.allocatable.get(&name).map_or(0, |q| if name == "cpu" { q.milli_value() } else { q.value() });
        let used = used.get(&name).copied().unwrap_or_default();
        (asked > 0 && asked + used > capacity).then(|| out_of(&name, asked, used, capacity))
    })
}

/// Whether this node looks after a resource. Others' resources, which were written into the node's status, are the
/// scheduler's to count: the node has no amount of its own to hold a pod against.
fn counted(allocatable: &BTreeMap<String, Quantity>, name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native || allocatable.contains_key(name)
}

fn out_of(name: &str, asked: i64, used: i64, capacity: i64) -> Refusal {
    let message = format!(
        "Pod was rejected: Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
    );
    Refusal { reason: format!("OutOf{name}"), message }
}

/// What a pod asks for.
pub(crate) fn requests(pod: &Pod) -> BTreeMap<String, i64> {
    let mut total: BTreeMap<String, i64> = BTreeMap::new();
    let mut peak: BTreeMap<String, i64> = BTreeMap::new();
    let mut sidecars: BTreeMap<String, i64> = BTreeMap::new();
    for (role, container) in spec::init_containers(pod) {
        for (name, amount) in of_container(container) {
            if role == Role::Sidecar {
                *sidecars.entry(name.clone()).or_default() += amount;
                *total.entry(name).or_default() += amount;
            } else {
                let with = amount + sidecars.get(&name).copied().unwrap_or_default();
                let top = peak.entry(name).or_default();
                *top = (*top).max(with);
            }
        }
    }
    for (name, amount) in spec::app_containers(pod).flat_map(of_container) {
        *total.entry(name).or_default() += amount;
    }
    for (name, amount) in peak {
        let sum = total.entry(name).or_default();
        *sum = (*sum).max(amount);
    }
    for (name, amount) in spec::spec(pod).overhead.iter().flatten() {
        *total.entry(name.clone()).or_default() += units(name, &amount.0);
    }
    total
}

fn units(name: &str, text: &str) -> i64 {
    spec::parse(text).map_or(0, |q| if name == "cpu" { q.milli_value() } else { q.value() })
}

fn of_container(container: &Container) -> Vec<(String, i64)> {
    let resources = container.resources.clone().unwrap_or_default();
    let requests = resources.requests.unwrap_or_default();
    requests.iter().map(|(name, amount)| (name.clone(), units(name, &amount.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_others_are_not_counted_here() {
        let one = || Quantity::from_units(1, api_meta::quantity::Format::DecimalSi);
        let own = BTreeMap::from([("cpu".to_owned(), one()), ("x.com/own".to_owned(), one())]);
        let table = [
            ("cpu", true),
            ("memory", true),
            ("hugepages-2Mi", true),
            ("kubernetes.io/batch", true),
            ("x.com/own", true),
        ];
        for (name, expected) in table.into_iter().chain([("example.com/gpu", false)]) {
            assert_eq!(counted(&own, name), expected, "{name}");
        }
    }
}
