//! Resources in a pod's status: those that are allocated, and those that are applied.

use super::resize::AppliedPod;
use super::spec;
use crate::cri_config::resources::compute_pod_resources;
use api_semantics::resources::{
    Options, ResourceList, is_limited, is_pod_level, pod_limits, pod_requests,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

type Amounts = BTreeMap<String, Quantity>;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

impl AppliedPod {
    /// Returns what the cgroup of a pod gets with its sandbox.
    pub(crate) fn of_pod(pod: &Pod) -> Self {
        AppliedPod {
            settings: compute_pod_resources(pod),
            amounts: compute_amounts(pod),
        }
    }
}

/// Returns CPU and memory of a pod as its cgroup has them: limits only if they bound the pod.
pub(crate) fn compute_amounts(pod: &Pod) -> ResourceRequirements {
    let options = Options::default();
    let (requests, limits) = (pod_requests(pod, &options), pod_limits(pod, &options));
    ResourceRequirements {
        claims: None,
        requests: to_amounts(&requests, |name| COMPUTE.contains(&name)),
        limits: to_amounts(&limits, |name| {
            COMPUTE.contains(&name) && is_limited(pod, name)
        }),
    }
}

/// Sets the resources of the pod itself (KEP-5419); `pod` has those that are allocated.
pub(crate) fn set_pod_resources(
    status: &mut PodStatus,
    pod: &Pod,
    is_running: bool,
    applied: Option<&AppliedPod>,
) {
    let options = Options::default();
    let requests = pod_requests(pod, &options);
    status.allocated_resources = to_amounts(&requests, |_| true);
    status.resources = Some(if is_running {
        let amounts = applied.map_or_else(|| compute_amounts(pod), |a| a.amounts.clone());
        add_other_resources(pod, amounts)
    } else {
        // Nothing runs with other resources yet.
        ResourceRequirements {
            claims: None,
            limits: to_amounts(&pod_limits(pod, &options), |_| true),
            requests: to_amounts(&requests, |_| true),
        }
    });
}

/// Adds what the pod itself requests beside CPU and memory, which no resize changes.
fn add_other_resources(pod: &Pod, mut amounts: ResourceRequirements) -> ResourceRequirements {
    let own = spec::read_spec(pod).resources.as_ref();
    for (own, amounts) in [
        (own.and_then(|r| r.requests.as_ref()), &mut amounts.requests),
        (own.and_then(|r| r.limits.as_ref()), &mut amounts.limits),
    ] {
        let is_other = |name: &str| is_pod_level(name) && !COMPUTE.contains(&name);
        for (name, amount) in own.into_iter().flatten().filter(|(name, _)| is_other(name)) {
            let amounts = amounts.get_or_insert_default();
            amounts.insert(name.clone(), amount.clone());
        }
    }
    amounts
}

/// Returns the resources of a running container: those that are applied, if they are known.
pub(crate) fn report_resources(
    container: &Container,
    applied: Option<&ResourceRequirements>,
) -> Option<ResourceRequirements> {
    let allocated = container.resources.as_ref()?;
    let applied = applied.unwrap_or(allocated);
    Some(ResourceRequirements {
        claims: None,
        requests: replace_compute(allocated.requests.as_ref(), applied.requests.as_ref()),
        limits: replace_compute(allocated.limits.as_ref(), applied.limits.as_ref()),
    })
}

/// Returns the allocated amounts, with CPU and memory as applied: a new one is absent until then.
fn replace_compute(allocated: Option<&Amounts>, applied: Option<&Amounts>) -> Option<Amounts> {
    let allocated = allocated?;
    let amounts = allocated.iter().filter_map(|(name, amount)| {
        let amount = if COMPUTE.contains(&name.as_str()) {
            applied?.get(name)?
        } else {
            amount
        };
        Some((name.clone(), amount.clone()))
    });
    Some(amounts.collect())
}

fn to_amounts(list: &ResourceList<'_>, is_shown: impl Fn(&str) -> bool) -> Option<Amounts> {
    let shown = list.iter().filter(|(name, _)| is_shown(name));
    let amounts: Amounts = shown
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_string())))
        .collect();
    (!amounts.is_empty()).then_some(amounts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn set(pod: &Pod, is_running: bool, applied: Option<&AppliedPod>) -> Value {
        let mut status = PodStatus::default();
        set_pod_resources(&mut status, pod, is_running, applied);
        serde_json::to_value(status).unwrap()
    }

    #[test]
    fn status_has_the_applied_resources_of_a_running_pod() {
        let of_pod = |cpu: &str| {
            crate::testing::pod(json!({
                "resources": {"requests": {"cpu": cpu, "hugepages-2Mi": "2Mi"},
                    "limits": {"cpu": "4", "hugepages-2Mi": "2Mi"}},
                "overhead": {"memory": "1Mi"},
                "containers": [{"name": "c", "resources": {"requests": {"memory": "64Mi", "ephemeral-storage": "1Gi"},
                    "limits": {"memory": "64Mi"}}}, {"name": "d"}]}))
        };
        let (before, after) = (of_pod("1"), of_pod("2"));
        let applied = AppliedPod::of_pod(&before);
        let status = set(&after, true, Some(&applied));
        let limits = json!({"cpu": "4", "hugepages-2Mi": "2Mi"});
        assert_eq!(
            status["allocatedResources"],
            json!({"cpu": "2", "memory": "65Mi", "hugepages-2Mi": "2Mi", "ephemeral-storage": "1Gi"})
        );
        assert_eq!(
            status["resources"],
            json!({"requests": {"cpu": "1", "memory": "65Mi", "hugepages-2Mi": "2Mi"}, "limits": limits})
        );
        let unknown = set(&after, true, None);
        assert_eq!(unknown["resources"]["requests"]["cpu"], "2");
        let waiting = set(&after, false, Some(&applied));
        assert_eq!(
            waiting["resources"]["requests"],
            status["allocatedResources"]
        );
    }

    #[test]
    fn status_of_a_pod_without_resources_has_an_empty_field() {
        let pod = crate::testing::pod(json!({"containers": [{"name": "c"}]}));
        for is_running in [false, true] {
            assert_eq!(set(&pod, is_running, None), json!({"resources": {}}));
        }
    }

    #[test]
    fn container_shows_amounts_only_once_they_are_applied() {
        let container: Container = serde_json::from_value(json!({"name": "c", "resources": {
            "requests": {"cpu": "2", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "3"}}}))
        .unwrap();
        let report = |applied: Option<Value>| {
            let applied = applied.map(|v| serde_json::from_value(v).unwrap());
            serde_json::to_value(report_resources(&container, applied.as_ref())).unwrap()
        };
        let allocated = serde_json::to_value(&container.resources).unwrap();
        assert_eq!(report(None), allocated);
        assert_eq!(
            report(Some(
                json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}})
            )),
            json!({"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {}})
        );
    }
}
