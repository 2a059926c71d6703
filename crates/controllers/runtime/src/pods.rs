//! Accessors of a pod's status: active, ready, available.

pub use api_semantics::pods::{condition, is_ready, is_terminal, phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::object::Meta;

/// Returns whether the pod counts as a replica: neither terminated nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !pod.is_deleting()
}

/// Returns whether the pod is being deleted but has not terminated.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.is_deleting()
}

/// Returns the time since which the pod has been ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|c| c.status == "True")?;
    ready.last_transition_time.as_ref().map(|t| t.0)
}

/// Returns the seconds until the pod becomes available if it stays ready: `Some(0)` means available
/// now, `None` not ready.
pub fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<i64> {
    if !is_ready(pod) {
        return None;
    }
    if min_ready_seconds <= 0 {
        return Some(0);
    }
    let since = ready_since(pod)?;
    Some((since.as_second() + i64::from(min_ready_seconds) - now.as_second()).max(0))
}

/// Returns whether the pod has been ready for `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now) == Some(0)
}

/// Returns the node of the pod, empty if it is not bound.
pub fn node_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.node_name.as_deref())
        .unwrap_or_default()
}

/// Index of pods by their node, for [`by_node`].
pub const BY_NODE: &str = "node";

/// Returns the values of a pod in the index [`BY_NODE`].
pub fn by_node(pod: &Pod) -> Vec<String> {
    // Unbound pods are left out: otherwise all of them would be listed under an empty name.
    Some(node_name(pod).to_owned())
        .filter(|name| !name.is_empty())
        .into_iter()
        .collect()
}

/// Returns the number of container restarts.
pub fn count_restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    all.map(|c| c.restart_count).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, deleting: bool, ready_since: Option<&str>) -> Pod {
        let conditions = ready_since.map(|at| {
            json!([{"type": "Ready", "status": "True",
            "lastTransitionTime": at}])
        });
        serde_json::from_value(json!({"metadata": {"name": "p",
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "status": {"phase": phase, "conditions": conditions}}))
        .unwrap()
    }

    #[test]
    fn pods_are_active_until_they_terminate_or_are_deleted() {
        for (phase, deleting, active, terminating) in [
            ("Running", false, true, false),
            ("Pending", false, true, false),
            ("Running", true, false, true),
            ("Failed", false, false, false),
            ("Succeeded", true, false, false),
        ] {
            let pod = pod(phase, deleting, None);
            assert_eq!(
                (is_active(&pod), is_terminating(&pod)),
                (active, terminating),
                "{phase}"
            );
        }
    }

    #[test]
    fn pod_is_available_after_it_was_ready_for_the_minimum_time() {
        let ready = pod("Running", false, Some("2026-01-01T00:00:00Z"));
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        assert_eq!(available_in(&ready, 0, now), Some(0));
        assert_eq!(available_in(&ready, 30, now), Some(20));
        assert!(is_available(&ready, 10, now) && !is_available(&ready, 11, now));
        assert_eq!(available_in(&pod("Running", false, None), 0, now), None);
    }

    #[test]
    fn restarts_of_init_containers_count() {
        let status = |count: i32| {
            json!([{"name": "c", "image": "", "imageID": "", "ready": true,
            "restartCount": count}])
        };
        let pod = serde_json::from_value(json!({"status": {"containerStatuses": status(2),
            "initContainerStatuses": status(3)}}))
        .unwrap();
        assert_eq!(count_restarts(&pod), 5);
    }
}
