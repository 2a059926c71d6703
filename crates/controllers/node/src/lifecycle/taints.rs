//! Taints for the scheduler that correspond to the kubelet's conditions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};

use controllers_runtime::time;

use super::condition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const BY_CONDITION: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    (
        "NetworkUnavailable",
        "node.kubernetes.io/network-unavailable",
    ),
];

/// Returns the desired taints if they differ. `evict` allows NoExecute.
pub fn wanted(node: &Node, evict: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.clone().unwrap_or_default();
    let old = spec.taints.unwrap_or_default();
    let mut keys: Vec<(&str, &str)> = Vec::new();
    let ready = condition(node, "Ready").map(|c| c.status.as_str());
    let lost = match ready {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = lost {
        keys.push((key, "NoSchedule"));
        if evict && ready.is_some() {
            keys.push((key, "NoExecute"));
        }
    }
    for (kind, key) in BY_CONDITION {
        if condition(node, kind).is_some_and(|c| c.status == "True") {
            keys.push((key, "NoSchedule"));
        }
    }
    if spec.unschedulable == Some(true) {
        keys.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let mut fresh: Vec<_> = old
        .iter()
        .filter(|t| !is_ours(t) || listed(&keys, t))
        .cloned()
        .collect();
    for (key, effect) in keys {
        if !fresh.iter().any(|t| t.key == key && t.effect == effect) {
            fresh.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(time::api(now)),
                value: None,
            });
        }
    }
    (fresh != old).then_some(fresh)
}

fn listed(keys: &[(&str, &str)], taint: &Taint) -> bool {
    keys.iter()
        .any(|(key, effect)| taint.key == *key && taint.effect == *effect)
}

/// Returns whether this controller manages the taint.
fn is_ours(taint: &Taint) -> bool {
    let lost = taint.key == NOT_READY || taint.key == UNREACHABLE;
    let other = taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, key)| taint.key == *key);
    match taint.effect.as_str() {
        "NoExecute" => lost,
        "NoSchedule" => lost || other,
        _ => false,
    }
}
