//! Graceful deletion: the grace period of pods.

use api_kinds::Resource;
use api_meta::{Meta, meta::str_at, time};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The effect of a delete on an object, before finalizers are considered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Remove at once.
    None,
    /// Request deletion with this grace period in seconds.
    Mark(i64),
    /// Deletion was already requested; no change.
    Marked,
}

/// Decides the effect of deleting `object`; `requested` is the requested grace period in seconds.
pub(crate) fn decide_grace(resource: &Resource, object: &Value, requested: Option<i64>) -> Grace {
    let requested = requested.map(|seconds| if seconds < 0 { 1 } else { seconds });
    // Pods are the only built-in kind with graceful deletion.
    if !is_pod(resource) {
        return Grace::None;
    }
    if object.is_being_deleted() {
        return shorten_grace(object, requested);
    }
    match pod_period(object, requested) {
        0 => Grace::None,
        seconds => Grace::Mark(seconds),
    }
}

fn is_pod(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

fn pod_period(pod: &Value, requested: Option<i64>) -> i64 {
    let ended = api_semantics::pods::is_terminal_phase(str_at(pod, &["status", "phase"]));
    // No kubelet will stop containers of such a pod, and so none would remove it afterwards.
    if ended || str_at(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    match requested.or(own).unwrap_or(30) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// Shortens a running grace period; it never becomes longer.
fn shorten_grace(pod: &Value, requested: Option<i64>) -> Grace {
    let running = current_grace(pod);
    match requested {
        Some(0) => Grace::None,
        // A period of 0 has ended: only finalizers keep the object.
        _ if running == 0 => Grace::None,
        Some(seconds) if seconds < running => Grace::Mark(seconds),
        _ => Grace::Marked,
    }
}

fn current_grace(object: &Value) -> i64 {
    object
        .metadata()
        .and_then(|m| m.get("deletionGracePeriodSeconds"))
        .and_then(Value::as_i64)
        .unwrap_or(0)
}

/// Requests deletion in `seconds`. The time counts from the first request.
pub(crate) fn mark_deleted(object: &mut Value, seconds: i64) {
    // The timestamp is the end of the grace period. Its begin stays the same when it is shortened.
    let begun = time::parse(object.meta_str("deletionTimestamp")).and_then(|end| {
        end.checked_sub(SignedDuration::from_secs(current_grace(object)))
            .ok()
    });
    let begun = begun.unwrap_or_else(Timestamp::now);
    let end = begun
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(begun);
    object.set_meta_str("deletionTimestamp", &time::format(end));
    object
        .metadata_mut()
        .insert("deletionGracePeriodSeconds".into(), seconds.into());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn periods() {
        let bound = json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": 40}});
        assert_eq!(pod_period(&bound, None), 40);
        assert_eq!(pod_period(&bound, Some(5)), 5);
        assert_eq!(pod_period(&json!({"spec": {}}), Some(5)), 0);
        let mut marked = bound;
        mark_deleted(&mut marked, 40);
        assert_eq!(shorten_grace(&marked, Some(20)), Grace::Mark(20));
        assert_eq!(shorten_grace(&marked, Some(50)), Grace::Marked);
        assert_eq!(shorten_grace(&marked, Some(0)), Grace::None);
    }
}
