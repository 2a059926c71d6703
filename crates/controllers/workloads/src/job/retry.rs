//! How long a failed pod's replacement waits: ten seconds, doubling, at most ten minutes.
//!
//! Everything is read from the pods that failed, so a restart of the controller forgets nothing.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state, time};

use super::View;
use super::indexes::index;

/// How often the index had failed before this pod.
pub const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const BASE: i64 = 10;
const LIMIT: i64 = 600;

/// How often the pod's index had failed before it.
pub fn failures_before(pod: &Pod) -> i64 {
    pod.annotation(FAILURES).and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// How long the next pod of the Job must wait.
pub fn delay(view: &View<'_>) -> Duration {
    let ended = |phase: &str| {
        let of = view
            .pods
            .iter()
            .filter(move |p| if phase == "Failed" { view.failed(p) } else { pod_state::phase(p) == phase });
        of.map(|p| end(p)).collect::<Vec<_>>()
    };
    let last_success = ended("Succeeded").into_iter().max();
    let failures: Vec<_> = ended("Failed").into_iter().filter(|at| last_success.is_none_or(|s| *at > s)).collect();
    let Some(last) = failures.iter().max() else { return Duration::ZERO };
    wait(*last, failures.len(), view.now)
}

/// How long the next pod of one index must wait, and how often the index has failed.
pub fn index_delay(view: &View<'_>, wanted: usize) -> (Duration, i64) {
    let mine: Vec<&Arc<Pod>> = view.pods.iter().filter(|p| index(p) == Some(wanted) && view.failed(p)).collect();
    let Some(last) = mine.iter().max_by_key(|p| (failures_before(p), end(p))) else { return (Duration::ZERO, 0) };
    let failures = failures_before(last) + 1;
    (wait(end(last), usize::try_from(failures).unwrap_or(1), view.now), failures)
}

fn wait(last: Timestamp, failures: usize, now: Timestamp) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    let seconds = (BASE << doublings).min(LIMIT);
    time::until(time::after(last, seconds), now)
}

/// When a pod ended.
fn end(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let containers = status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let finished =
        containers.filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|t| t.0)).max();
    let ready = pod_state::condition(pod, "Ready").and_then(|c| c.last_transition_time.as_ref().map(|t| t.0));
    let deleted = pod.meta().deletion_timestamp.as_ref().map(|t| {
        let grace = pod.meta().deletion_grace_period_seconds.unwrap_or(0);
        time::after(t.0, -grace)
    });
    let created = pod.meta().creation_timestamp.as_ref().map(|t| t.0);
    finished.or(deleted).or(ready).or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}
