//! Admission of pods that are bound to this node.

mod features;
mod ports;
pub(super) mod rejection;

use crate::context::KubeletContext;
use crate::cri_config::security;
use crate::pod::spec;
use crate::worker::admit::rejection::Rejection;
use api_meta::Quantity;
use api_semantics::resources::{self, Options, pod_requests};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns why the pod can't run here; None if it is admitted.
pub(crate) fn admit_pod(kubelet: &KubeletContext, pod: &Pod) -> Option<Rejection> {
    // Only the first reason is reported, so the order of the checks is part of the behaviour.
    if let Some(rejection) = check_node_support(kubelet, pod) {
        return Some(rejection);
    }
    let others = kubelet
        .workers
        .active_besides(pod.metadata.uid.as_deref().unwrap_or_default());
    check_fit(pod, &others, &kubelet.allocatable)
}

/// Checks that the node supports what the pod's spec requires, whatever runs beside it.
pub(crate) fn check_node_support(kubelet: &KubeletContext, pod: &Pod) -> Option<Rejection> {
    if let Some(name) = security::forbidden_sysctl(pod, &kubelet.settings.unsafe_sysctls) {
        let message = format!("forbidden sysctl: {name:?} not allowlisted");
        return Some(Rejection {
            reason: "SysctlForbidden".into(),
            message,
        });
    }
    let is_other_os = spec::read_spec(pod)
        .os
        .as_ref()
        .is_some_and(|os| os.name != "linux");
    if is_other_os {
        let message = "Failed to admit pod as the OS field doesn't match node OS".into();
        return Some(Rejection {
            reason: "PodOSNotSupported".into(),
            message,
        });
    }
    features::check_features(pod, &kubelet.features.read())
}

/// Checks that a pod fits beside the others: number of pods, host ports, resources.
fn check_fit(
    pod: &Pod,
    others: &[Arc<Pod>],
    allocatable: &BTreeMap<String, Quantity>,
) -> Option<Rejection> {
    let pods = allocatable.get("pods").map_or(i64::MAX, |q| q.value());
    let count = i64::try_from(others.len()).unwrap_or(i64::MAX);
    // The pod itself is not among the others yet.
    if count >= pods {
        let shortage = Shortage {
            name: "pods".to_owned(),
            requested: 1,
            used: count,
            capacity: pods,
        };
        return Some(shortage.reject_pod());
    }
    if ports::has_conflict(pod, others) {
        return Some(Rejection {
            reason: "NodePorts".into(),
            message: ports::MESSAGE.into(),
        });
    }
    let mut used = UsedResources::default();
    others.iter().for_each(|other| used.add(other));
    find_shortage(pod, &used, allocatable).map(|shortage| shortage.reject_pod())
}

/// Amounts that pods on the node have, by the resource's name: sums, so that a decision about many
/// pods reads each of them once.
#[derive(Debug, Default)]
pub(super) struct UsedResources(BTreeMap<String, i128>);

impl UsedResources {
    /// Adds a pod.
    pub(super) fn add(&mut self, pod: &Pod) {
        self.sum(pod, 1);
    }

    /// Removes a pod that was added.
    pub(super) fn remove(&mut self, pod: &Pod) {
        self.sum(pod, -1);
    }

    fn sum(&mut self, pod: &Pod, sign: i128) {
        // Pods on the node keep what they have until a resize is done.
        let with_resizes = Options {
            use_status: true,
            use_pod_status: true,
            ..Options::default()
        };
        for (name, amount) in pod_requests(pod, &with_resizes).iter() {
            let sum = self.0.entry(name.to_owned()).or_default();
            *sum += sign * i128::from(resources::count(name, amount));
        }
    }

    fn count(&self, name: &str) -> i64 {
        let sum = self.0.get(name).copied().unwrap_or_default();
        i64::try_from(sum).unwrap_or(i64::MAX)
    }
}

/// Finds the resource of which a pod requests more than the others leave.
pub(super) fn find_shortage(
    pod: &Pod,
    used: &UsedResources,
    allocatable: &BTreeMap<String, Quantity>,
) -> Option<Shortage> {
    let requests = pod_requests(pod, &Options::default());
    let mut requests: Vec<_> = requests
        .iter()
        .filter(|(name, _)| is_counted(allocatable, name))
        .collect();
    // In a fixed order, so that the message of a pod that lacks several resources is always the
    // same.
    requests.sort_unstable_by_key(|(name, _)| *name);
    requests.into_iter().find_map(|(name, requested)| {
        let shortage = Shortage {
            name: name.to_owned(),
            requested: resources::count(name, requested),
            used: used.count(name),
            capacity: allocatable
                .get(name)
                .map_or(0, |q| resources::count(name, *q)),
        };
        // A pod that requests nothing of a resource fits even on a node that is over-committed.
        let Shortage {
            requested, used, ..
        } = shortage;
        let is_short = requested > 0 && requested.saturating_add(used) > shortage.capacity;
        is_short.then_some(shortage)
    })
}

/// Returns whether this node accounts for a resource. Extended resources that were written into the
/// node's status are counted by the scheduler only: the node has no amount of its own.
fn is_counted(allocatable: &BTreeMap<String, Quantity>, name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    native || allocatable.contains_key(name)
}

/// A resource of which the node has too little.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
)]
pub(super) struct Shortage {
    name: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Shortage {
    fn reject_pod(&self) -> Rejection {
        Rejection {
            reason: format!("OutOf{}", self.name),
            message: format!("Pod was rejected: {self}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pod(uid: &str, spec: serde_json::Value) -> Arc<Pod> {
        let value = serde_json::json!({"metadata": {"name": uid, "uid": uid}, "spec": spec});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn asking(uid: &str, cpu: &str) -> Arc<Pod> {
        let requests = serde_json::json!({"requests": {"cpu": cpu}});
        pod(
            uid,
            serde_json::json!({"containers": [{"name": "c", "resources": requests}]}),
        )
    }

    #[test]
    fn pod_is_admitted_up_to_the_allocatable_resources() {
        let allocatable: BTreeMap<String, Quantity> = [("cpu", "2"), ("pods", "2")]
            .map(|(n, q)| (n.to_owned(), q.parse().unwrap()))
            .into();
        let reason = |cpu: &str, others: &[Arc<Pod>]| {
            check_fit(&asking("new", cpu), others, &allocatable).map(|r| r.reason)
        };
        assert_eq!(
            reason("1400m", &[]),
            None,
            "more than half of an empty node"
        );
        assert_eq!(reason("2", &[]), None);
        assert_eq!(reason("2001m", &[]).as_deref(), Some("OutOfcpu"));
        assert_eq!(
            reason("1", &[asking("a", "1")]),
            None,
            "as many pods as are allowed"
        );
        assert_eq!(
            reason("1001m", &[asking("a", "1")]).as_deref(),
            Some("OutOfcpu")
        );
        assert_eq!(
            reason("1m", &[asking("a", "1m"), asking("b", "1m")]).as_deref(),
            Some("OutOfpods")
        );
    }

    #[test]
    fn pod_level_requests_and_overhead_are_counted() {
        let pod = pod(
            "p",
            serde_json::json!({"overhead": {"cpu": "100m"},
            "resources": {"requests": {"cpu": "1", "ephemeral-storage": "7"}},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "300m", "memory": "5"}}}]}),
        );
        let allocatable = |cpu: &str| BTreeMap::from([("cpu".to_owned(), cpu.parse().unwrap())]);
        let message =
            |cpu: &str| check_fit(&pod, &[], &allocatable(cpu)).map(|refusal| refusal.message);
        assert!(message("1099m").unwrap().contains("cpu, requested: 1100"));
        assert!(message("1100m").unwrap().contains("memory, requested: 5"));
    }

    #[test]
    fn extended_resources_without_a_node_amount_are_not_counted() {
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
            assert_eq!(is_counted(&own, name), expected, "{name}");
        }
    }
}
