//! Requests and limits as cgroup settings.

use crate::pod::spec::{self, Role};
use api_meta::Quantity;
use k8s_openapi::api::core::v1::{Container, Pod};
use node_runtime::v1::LinuxContainerResources;

const PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1_000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// cpu.shares of so many thousandths of a cpu.
pub(crate) fn shares(millis: i64) -> i64 {
    if millis == 0 { MIN_SHARES } else { (millis * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES) }
}

/// cpu.cfs_quota_us of so many thousandths of a cpu in a period of 100 ms; 0 for none.
pub(crate) fn quota(millis: i64) -> i64 {
    if millis == 0 { 0 } else { (millis * PERIOD / 1000).max(MIN_QUOTA) }
}

fn amount(container: &Container, limits: bool, name: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let map = if limits { resources.limits.as_ref() } else { resources.requests.as_ref() };
    map?.get(name).and_then(|q| spec::parse(&q.0))
}

/// cpu in thousandths: the request, or else the limit.
pub(crate) fn cpu_request(container: &Container) -> i64 {
    amount(container, false, "cpu").or_else(|| amount(container, true, "cpu")).map_or(0, |q| q.milli_value())
}

pub(crate) fn cpu_limit(container: &Container) -> i64 {
    amount(container, true, "cpu").map_or(0, |q| q.milli_value())
}

pub(crate) fn memory_limit(container: &Container) -> i64 {
    amount(container, true, "memory").map_or(0, |q| q.value())
}

fn memory_request(container: &Container) -> i64 {
    amount(container, false, "memory").or_else(|| amount(container, true, "memory")).map_or(0, |q| q.value())
}

pub(crate) fn limit_of(container: &Container, name: &str) -> Option<i64> {
    amount(container, true, name).map(|q| q.value())
}

/// A container's cgroup settings.
pub(crate) fn of_container(
    pod: &Pod,
    container: &Container,
    capacity: i64,
    least_score: i64,
) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: quota(cpu_limit(container)),
        cpu_shares: shares(cpu_request(container)),
        memory_limit_in_bytes: memory_limit(container),
        oom_score_adj: oom_score(pod, container, capacity).max(least_score),
        ..LinuxContainerResources::default()
    }
}

/// What the kernel kills first: the less of the node's memory a container asked for, the sooner.
pub(crate) fn oom_score(pod: &Pod, container: &Container, capacity: i64) -> i64 {
    if spec::spec(pod).priority.is_some_and(|p| p >= 2_000_000_000) {
        return -997;
    }
    match spec::qos(pod) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let score = 1000 - 1000 * memory_request(container) / capacity.max(1);
            score.clamp(3, 999)
        }
    }
}

/// What a pod's cgroup gets: shares, quota, memory limit (0 for none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodResources {
    pub(crate) shares: i64,
    pub(crate) quota: i64,
    pub(crate) memory: i64,
}

/// Sums over containers; init containers run before the others, sidecars beside them.
pub(crate) fn of_pod(pod: &Pod) -> PodResources {
    let total = |of: fn(&Container) -> i64| {
        let mut sidecars = 0;
        let mut peak = 0;
        for (role, c) in spec::init_containers(pod) {
            if role == Role::Sidecar { sidecars += of(c) } else { peak = peak.max(of(c) + sidecars) }
        }
        (spec::app_containers(pod).map(of).sum::<i64>() + sidecars).max(peak)
    };
    let all = || spec::init_containers(pod).map(|(_, c)| c).chain(spec::app_containers(pod));
    let limited = |of: fn(&Container) -> i64| all().all(|c| of(c) > 0);
    PodResources {
        shares: shares(total(cpu_request)),
        quota: if limited(cpu_limit) { quota(total(cpu_limit)) } else { 0 },
        memory: if limited(memory_limit) { total(memory_limit) } else { 0 },
    }
}
