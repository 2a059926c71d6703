//! Taints for the scheduler that correspond to the kubelet's conditions.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};

use controllers_runtime::time;

use super::find_condition;

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
pub fn desired_taints(node: &Node, evict: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.clone().unwrap_or_default();
    let old = spec.taints.unwrap_or_default();
    let mut keys: Vec<(&str, &str)> = Vec::new();
    let ready = find_condition(node, "Ready").map(|c| c.status.as_str());
    let lost = match ready {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    if let Some(key) = lost {
        keys.push((key, "NoSchedule"));
        // A node that never reported has no pods that could be evicted.
        if evict && ready.is_some() {
            keys.push((key, "NoExecute"));
        }
    }
    for (kind, key) in BY_CONDITION {
        if find_condition(node, kind).is_some_and(|c| c.status == "True") {
            keys.push((key, "NoSchedule"));
        }
    }
    // Pods tolerate a cordoned node by this taint; `kubectl cordon` sets only the field.
    if spec.unschedulable == Some(true) {
        keys.push((UNSCHEDULABLE, "NoSchedule"));
    }
    // Taints of other owners stay, in their order.
    let mut fresh: Vec<_> = old
        .iter()
        .filter(|t| !is_ours(t) || contains_taint(&keys, t))
        .cloned()
        .collect();
    for (key, effect) in keys {
        // An existing taint keeps its timeAdded, from which tolerationSeconds of pods are counted.
        if !fresh.iter().any(|t| t.key == key && t.effect == effect) {
            fresh.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(time::api_time(now)),
                value: None,
            });
        }
    }
    (fresh != old).then_some(fresh)
}

fn contains_taint(keys: &[(&str, &str)], taint: &Taint) -> bool {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn taints_of(conditions: serde_json::Value, unschedulable: bool, evict: bool) -> Vec<String> {
        let node = serde_json::from_value(json!({"metadata": {"name": "n"},
            "spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}}))
        .unwrap();
        let found = desired_taints(&node, evict, Timestamp::UNIX_EPOCH).unwrap_or_default();
        found
            .iter()
            .map(|t| format!("{}:{}", t.key.rsplit('/').next().unwrap(), t.effect))
            .collect()
    }

    #[test]
    fn taints_follow_the_conditions_of_the_node() {
        let with = |kind: &str, status: &str| {
            json!([{"type": "Ready", "status": "True"},
            {"type": kind, "status": status}])
        };
        for (conditions, expect) in [
            (
                with("MemoryPressure", "True"),
                vec!["memory-pressure:NoSchedule"],
            ),
            (
                with("DiskPressure", "True"),
                vec!["disk-pressure:NoSchedule"],
            ),
            (with("PIDPressure", "True"), vec!["pid-pressure:NoSchedule"]),
            (
                with("NetworkUnavailable", "True"),
                vec!["network-unavailable:NoSchedule"],
            ),
            (with("MemoryPressure", "False"), vec![]),
            (with("MemoryPressure", "Unknown"), vec![]),
        ] {
            assert_eq!(
                taints_of(conditions.clone(), false, true),
                expect,
                "{conditions}"
            );
        }
    }

    #[test]
    fn cordoned_node_is_tainted_as_unschedulable() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        assert_eq!(taints_of(ready, true, true), ["unschedulable:NoSchedule"]);
    }

    #[test]
    fn node_without_a_ready_condition_is_not_ready_but_evicts_nothing() {
        assert_eq!(taints_of(json!([]), false, true), ["not-ready:NoSchedule"]);
    }
}
