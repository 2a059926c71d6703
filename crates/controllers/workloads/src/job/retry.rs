//! Back-off of failed pods' replacements: 10 s, doubled, at most 10 min.
//!
//! The state is read from the failed pods, so it survives a restart of the controller.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Meta, pods as pod_state, time};

use super::failures::Failures;
use super::indexes::{Indexes, completion_index};
use super::view::View;

const BASE: i64 = 10;
const LIMIT: i64 = 600;

/// Returns the latest failed pod of each index, which carries the index's failure count.
pub fn latest_by_index<'v>(view: &'v View<'_>) -> HashMap<usize, &'v Arc<Pod>> {
    let mut latest: HashMap<usize, &Arc<Pod>> = HashMap::new();
    // The count decides before the time, because the clocks of nodes differ.
    let age = |pod: &Pod| {
        (
            Failures::before_pod(pod).total_failures(),
            termination_time(pod),
        )
    };
    for pod in view.pods.iter().filter(|p| view.has_failed(p)) {
        let Some(index) = completion_index(pod) else {
            continue;
        };
        let known = latest.entry(index).or_insert(pod);
        if age(known) <= age(pod) {
            *known = pod;
        }
    }
    latest
}

/// Returns UIDs of failed pods that keep their finalizer until the next pod of their index exists:
/// the index's failure count is stored only in them.
pub fn find_kept_pods<'v>(view: &'v View<'_>, indexes: &Indexes) -> HashSet<&'v str> {
    if view.spec.backoff_limit_per_index.is_none() || view.job.is_deleting() {
        return HashSet::new();
    }
    let active: HashSet<usize> = view
        .pods
        .iter()
        .filter(|p| pod_state::is_active(p))
        .filter_map(|p| completion_index(p))
        .collect();
    let total = view.completions().unwrap_or(0);
    let open = |i: usize| {
        i < total
            && !indexes.succeeded.contains(i)
            && !indexes.failed.contains(i)
            && !active.contains(&i)
    };
    latest_by_index(view)
        .into_iter()
        .filter(|(i, _)| open(*i))
        .map(|(_, pod)| pod.uid())
        .collect()
}

/// Returns the delay of the Job's next pod.
pub fn pod_delay(view: &View<'_>) -> Duration {
    let ended = |phase: &str| {
        let of = view.pods.iter().filter(move |p| {
            if phase == "Failed" {
                view.has_failed(p)
            } else {
                pod_state::phase(p) == phase
            }
        });
        of.map(|p| termination_time(p)).collect::<Vec<_>>()
    };
    // A success resets the back-off, as upstream: the pods can work, so the next one starts at
    // once.
    let last_success = ended("Succeeded").into_iter().max();
    let failures: Vec<_> = ended("Failed")
        .into_iter()
        .filter(|at| last_success.is_none_or(|s| *at > s))
        .collect();
    let Some(last) = failures.iter().max() else {
        return Duration::ZERO;
    };
    backoff_delay(*last, failures.len(), view.now)
}

/// Returns the delay of an index's next pod after its latest failed pod, and the failures of the
/// index.
pub fn index_delay(view: &View<'_>, latest: Option<&Arc<Pod>>) -> (Duration, Failures) {
    let Some(last) = latest else {
        return (Duration::ZERO, Failures::default());
    };
    let failures = Failures::including_pod(view, last);
    (
        backoff_delay(
            termination_time(last),
            usize::try_from(failures.total_failures()).unwrap_or(1),
            view.now,
        ),
        failures,
    )
}

fn backoff_delay(last: Timestamp, failures: usize, now: Timestamp) -> Duration {
    // Ten doublings exceed the limit already; more of them would overflow the shift.
    let doublings = u32::try_from(failures.saturating_sub(1))
        .unwrap_or(u32::MAX)
        .min(10);
    let seconds = (BASE << doublings).min(LIMIT);
    time::duration_until(time::seconds_after(last, seconds), now)
}

/// Returns the time at which a pod terminated.
fn termination_time(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let containers = status
        .iter()
        .flat_map(|s| s.container_statuses.iter().flatten());
    let finished = containers
        .filter_map(|c| {
            c.state
                .as_ref()?
                .terminated
                .as_ref()?
                .finished_at
                .as_ref()
                .map(|t| t.0)
        })
        .max();
    let ready = pod_state::condition(pod, "Ready")
        .and_then(|c| c.last_transition_time.as_ref().map(|t| t.0));
    // deletionTimestamp lies in the future by the grace period. The deletion was requested before
    // it.
    let deleted = pod.meta().deletion_timestamp.as_ref().map(|t| {
        let grace = pod.meta().deletion_grace_period_seconds.unwrap_or(0);
        time::seconds_after(t.0, -grace)
    });
    let created = pod.meta().creation_timestamp.as_ref().map(|t| t.0);
    finished
        .or(deleted)
        .or(ready)
        .or(created)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}
