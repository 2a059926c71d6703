//! Accessors of a pod's status: active, ready, available.

pub use api_semantics::pods::{condition, is_ready, is_terminal, phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::object::Meta;

/// Returns whether the pod counts as a replica: neither terminated nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !pod.deleting()
}

/// Returns whether the pod is being deleted but has not terminated.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.deleting()
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
    Some(node_name(pod).to_owned())
        .filter(|name| !name.is_empty())
        .into_iter()
        .collect()
}

/// Returns the number of container restarts.
pub fn restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    all.map(|c| c.restart_count).sum()
}
