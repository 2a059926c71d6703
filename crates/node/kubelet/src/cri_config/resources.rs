//! Requests and limits as cgroup settings.

use crate::pod::spec;
use api_meta::Quantity;
use api_semantics::resources::{
    Options, ResourceList, count, is_limited, pod_limits, pod_requests,
};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use node_runtime::v1::LinuxContainerResources;

/// Period of quotas in microseconds.
pub(crate) const PERIOD: i64 = 100_000;
/// Resources that a pod shares with its containers.
const COMPUTE: [&str; 2] = ["cpu", "memory"];
const MIN_QUOTA: i64 = 1_000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// Returns cpu.shares for an amount of cpu in millis.
pub(crate) fn compute_cpu_shares(millis: i64) -> i64 {
    if millis == 0 {
        MIN_SHARES
    } else {
        (millis * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
    }
}

/// Returns cpu.cfs_quota_us for an amount of cpu in millis, in a period of 100 ms; 0 for no limit.
pub(crate) fn compute_cpu_quota(millis: i64) -> i64 {
    if millis == 0 {
        0
    } else {
        (millis * PERIOD / 1000).max(MIN_QUOTA)
    }
}

fn read_amount(resources: &ResourceRequirements, limits: bool, name: &str) -> Option<Quantity> {
    let map = if limits {
        resources.limits.as_ref()
    } else {
        resources.requests.as_ref()
    };
    map?.get(name).and_then(|q| spec::parse_quantity(&q.0))
}

/// Returns a request as components count it, 0 if there is none.
pub(crate) fn read_request_of(resources: &ResourceRequirements, name: &str) -> i64 {
    read_amount(resources, false, name).map_or(0, |amount| count(name, amount))
}

/// Returns a limit as components count it, 0 if there is none.
pub(crate) fn read_limit_of(resources: &ResourceRequirements, name: &str) -> i64 {
    read_amount(resources, true, name).map_or(0, |amount| count(name, amount))
}

/// Returns the cpu request in millis, or else the limit.
pub(crate) fn read_cpu_request(resources: &ResourceRequirements) -> i64 {
    read_amount(resources, false, "cpu")
        .or_else(|| read_amount(resources, true, "cpu"))
        .map_or(0, |q| q.milli_value())
}

fn read_memory_request(container: &Container) -> i64 {
    let resources = container.resources.as_ref();
    resources
        .and_then(|r| read_amount(r, false, "memory").or_else(|| read_amount(r, true, "memory")))
        .map_or(0, |q| q.value())
}

pub(crate) fn read_limit(container: &Container, name: &str) -> Option<i64> {
    read_amount(container.resources.as_ref()?, true, name).map(|q| q.value())
}

/// Returns the resources that a container runs with: a limit of cpu or memory that it lacks is that
/// of the whole pod, as upstream. Programs that read the limits of their cgroup find one.
pub(crate) fn compute_effective_resources(
    pod: &Pod,
    container: &Container,
) -> ResourceRequirements {
    let mut own = container.resources.clone().unwrap_or_default();
    let of_pod = spec::read_spec(pod).resources.as_ref();
    for (name, limit) in of_pod.and_then(|r| r.limits.as_ref()).into_iter().flatten() {
        if COMPUTE.contains(&name.as_str()) && read_limit_of(&own, name) == 0 {
            let limits = own.limits.get_or_insert_default();
            limits.insert(name.clone(), limit.clone());
        }
    }
    own
}

/// Returns a container's cgroup settings.
pub(crate) fn build_container_resources(
    pod: &Pod,
    container: &Container,
    capacity: i64,
    least_score: i64,
) -> LinuxContainerResources {
    let effective = compute_effective_resources(pod, container);
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: compute_cpu_quota(read_limit_of(&effective, "cpu")),
        cpu_shares: compute_cpu_shares(read_cpu_request(&effective)),
        memory_limit_in_bytes: read_limit_of(&effective, "memory"),
        // A kubelet without CAP_SYS_RESOURCE cannot lower the score below its own, and runc would
        // fail.
        oom_score_adj: compute_oom_score(pod, container, capacity).max(least_score),
        ..LinuxContainerResources::default()
    }
}

/// Returns the OOM score adjustment: the smaller the memory request relative to the node's memory,
/// the sooner the kernel kills the container.
pub(crate) fn compute_oom_score(pod: &Pod, container: &Container, capacity: i64) -> i64 {
    if is_node_critical(pod) {
        return -997;
    }
    match spec::compute_pod_qos(pod) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let score = 1000 - 1000 * read_memory_request(container) / capacity.max(1);
            score.clamp(3, 999)
        }
    }
}

/// Returns whether the pod is node-critical. Cluster-critical pods get no protection from the OOM
/// killer.
fn is_node_critical(pod: &Pod) -> bool {
    let spec = spec::read_spec(pod);
    let critical =
        spec.priority.is_some_and(|p| p >= 2_000_000_000) || crate::pod_source::is_static(pod);
    critical && spec.priority_class_name.as_deref() == Some("system-node-critical")
}

/// A setting of a pod's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodSetting {
    /// Limit in bytes.
    Memory(i64),
    /// Microseconds of CPU in each period.
    Quota(i64),
    Shares(i64),
}

/// Cgroup settings of a pod: shares, quota, memory limit (0 for none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodResources {
    pub(crate) shares: i64,
    pub(crate) quota: i64,
    pub(crate) memory: i64,
}

impl PodResources {
    /// Returns the settings with one of them changed.
    pub(crate) fn with(mut self, setting: PodSetting) -> Self {
        match setting {
            PodSetting::Memory(limit) => self.memory = limit,
            PodSetting::Quota(quota) => self.quota = quota,
            PodSetting::Shares(shares) => self.shares = shares,
        }
        self
    }

    /// Returns the settings without those of an overhead. What is not set stays so.
    pub(crate) fn without(self, overhead: Self) -> Self {
        let subtract = |own: i64, other: i64| if own == 0 { 0 } else { (own - other).max(0) };
        PodResources {
            shares: subtract(self.shares, overhead.shares),
            quota: subtract(self.quota, overhead.quota),
            memory: subtract(self.memory, overhead.memory),
        }
    }
}

/// Returns the settings that a pod's overhead stands for.
pub(crate) fn compute_overhead_resources(pod: &Pod) -> PodResources {
    let Some(overhead) = &spec::read_spec(pod).overhead else {
        return PodResources::default();
    };
    let overhead = ResourceList::new(Some(overhead));
    let cpu = overhead.count("cpu");
    PodResources {
        shares: if cpu == 0 { 0 } else { compute_cpu_shares(cpu) },
        quota: compute_cpu_quota(cpu),
        memory: overhead.count("memory"),
    }
}

/// Returns the settings of a pod's cgroup.
pub(crate) fn compute_pod_resources(pod: &Pod) -> PodResources {
    if spec::compute_pod_qos(pod) == "BestEffort" {
        return PodResources {
            shares: MIN_SHARES,
            ..PodResources::default()
        };
    }
    let requests = pod_requests(pod, &Options::default());
    let limits = pod_limits(pod, &Options::default());
    // A limit of the pod exists only if every container has one, or the pod itself.
    let limit = |name: &str| {
        if is_limited(pod, name) {
            limits.count(name)
        } else {
            0
        }
    };
    PodResources {
        shares: compute_cpu_shares(requests.count("cpu")),
        quota: compute_cpu_quota(limit("cpu")),
        memory: limit("memory"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn pod_cgroup_holds_the_pods_own_limits_and_its_overhead() {
        let c = |limits: Value| json!([{"name": "c", "resources": {"limits": limits}}]);
        for (spec, quota, memory) in [
            (json!({"containers": c(json!({}))}), 0, 0),
            (
                json!({"containers": c(json!({"cpu": "1", "memory": "100"}))}),
                100_000,
                100,
            ),
            (
                json!({"containers": c(json!({"cpu": "1", "memory": "100"})), "overhead": {"cpu": "500m", "memory": "7"}}),
                150_000,
                107,
            ),
            (
                json!({"containers": c(json!({})), "resources": {"limits": {"cpu": "2", "memory": "50"}}}),
                200_000,
                50,
            ),
            (
                json!({"containers": c(json!({})), "overhead": {"cpu": "500m", "memory": "7"}}),
                0,
                0,
            ),
        ] {
            let got = compute_pod_resources(&pod(spec.clone()));
            assert_eq!((got.quota, got.memory), (quota, memory), "{spec}");
        }
        let level = json!({"containers": c(json!({})), "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "1"}});
        assert_eq!(compute_pod_resources(&pod(level)).shares, 2048);
    }

    #[test]
    fn only_node_critical_pods_are_spared_by_the_kernel() {
        let score = |class: &str, priority: i64| {
            let spec = json!({"priorityClassName": class, "priority": priority, "containers": [{"name": "c"}]});
            let pod = pod(spec);
            let container = spec::app_containers(&pod).next().unwrap().clone();
            compute_oom_score(&pod, &container, 1000)
        };
        assert_eq!(score("system-node-critical", 2_000_001_000), -997);
        assert_eq!(score("system-cluster-critical", 2_000_000_000), 1000);
        assert_eq!(score("high", 2_000_000_000), 1000);
    }

    #[test]
    fn cpu_request_becomes_shares_within_the_limits_of_the_kernel() {
        for (millis, shares) in [(0, 2), (1, 2), (100, 102), (1000, 1024), (500_000, 262_144)] {
            assert_eq!(compute_cpu_shares(millis), shares, "{millis}m");
        }
    }

    #[test]
    fn cpu_limit_becomes_a_quota_of_at_least_one_millisecond() {
        for (millis, quota) in [
            (0, 0),
            (1, 1_000),
            (10, 1_000),
            (100, 10_000),
            (2500, 250_000),
        ] {
            assert_eq!(compute_cpu_quota(millis), quota, "{millis}m");
        }
    }

    /// The more of the node's memory a container requests, the later it is killed.
    #[test]
    fn oom_score_of_a_burstable_container_follows_its_memory_request() {
        for (request, score) in [("1", 999), ("250", 750), ("999", 3), ("5000", 3)] {
            let resources = json!({"requests": {"memory": request}});
            let pod = pod(json!({"containers": [{"name": "c", "resources": resources}]}));
            let container = spec::app_containers(&pod).next().unwrap();
            assert_eq!(compute_oom_score(&pod, container, 1000), score, "{request}");
        }
        let limits = json!({"cpu": "1", "memory": "10"});
        let resources = json!({"requests": limits, "limits": limits});
        let guaranteed = pod(json!({"containers": [{"name": "c", "resources": resources}]}));
        let container = spec::app_containers(&guaranteed).next().unwrap();
        assert_eq!(compute_oom_score(&guaranteed, container, 1000), -997);
    }

    #[test]
    fn container_without_a_limit_has_that_of_its_pod() {
        let of_pod = json!({"limits": {"cpu": "2", "memory": "64", "hugepages-2Mi": "2Mi"}});
        for (own, quota, memory, shares) in [
            (json!({}), 200_000, 64, 2048),
            (json!({"limits": {"cpu": "500m"}}), 50_000, 64, 512),
            (
                json!({"limits": {"memory": "32"}, "requests": {"cpu": "1"}}),
                200_000,
                32,
                1024,
            ),
        ] {
            let pod = pod(json!({"resources": of_pod,
                "containers": [{"name": "c", "resources": own}]}));
            let container = spec::app_containers(&pod).next().unwrap();
            let settings = build_container_resources(&pod, container, 1000, 0);
            assert_eq!(
                (
                    settings.cpu_quota,
                    settings.memory_limit_in_bytes,
                    settings.cpu_shares
                ),
                (quota, memory, shares),
                "{own}"
            );
        }
    }

    #[test]
    fn container_without_requests_gets_those_of_its_limits() {
        let resources = json!({"limits": {"cpu": "500m", "memory": "64"}});
        let pod = pod(json!({"containers": [{"name": "c", "resources": resources}]}));
        let container = spec::app_containers(&pod).next().unwrap();
        let settings = build_container_resources(&pod, container, 1000, 0);
        assert_eq!((settings.cpu_shares, settings.cpu_quota), (512, 50_000));
        assert_eq!(settings.memory_limit_in_bytes, 64);
        assert!(
            settings.oom_score_adj >= 0,
            "a kubelet without privileges can't lower it"
        );
    }
}
