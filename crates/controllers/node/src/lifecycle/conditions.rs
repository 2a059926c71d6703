//! Conditions of a node without heartbeats.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};

use controllers_runtime::time;

/// Conditions that are marked unknown together.
const KINDS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Returns a condition by its type.
pub fn find_condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status
        .as_ref()?
        .conditions
        .as_ref()?
        .iter()
        .find(|c| c.type_ == kind)
}

/// Marks all conditions of the kubelet as unknown; returns true if that changes anything.
pub fn mark_unknown(node: &mut Node, now: Timestamp) -> bool {
    let conditions = node
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    let mut changed = false;
    for kind in KINDS {
        match conditions.iter_mut().find(|c| c.type_ == kind) {
            Some(c) if c.status == "Unknown" => {}
            Some(c) => {
                c.status = "Unknown".to_owned();
                c.reason = Some("NodeStatusUnknown".to_owned());
                c.message = Some("Kubelet stopped posting node status.".to_owned());
                c.last_transition_time = Some(time::api_time(now));
                changed = true;
            }
            None => {
                conditions.push(NodeCondition {
                    type_: kind.to_owned(),
                    status: "Unknown".to_owned(),
                    reason: Some("NodeStatusNeverUpdated".to_owned()),
                    message: Some("Kubelet never posted node status.".to_owned()),
                    // The creation, as upstream: a heartbeat time of now would claim that the
                    // kubelet has reported.
                    last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                    last_transition_time: Some(time::api_time(now)),
                });
                changed = true;
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_that_were_never_posted_are_added_as_unknown() {
        let mut node: Node = serde_json::from_value(json!({"metadata": {"name": "n"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
        .unwrap();
        assert!(mark_unknown(&mut node, Timestamp::UNIX_EPOCH));
        let reason = |kind: &str| find_condition(&node, kind).unwrap().reason.clone().unwrap();
        assert_eq!(reason("Ready"), "NodeStatusUnknown");
        assert_eq!(reason("DiskPressure"), "NodeStatusNeverUpdated");
        assert!(find_condition(&node, "NetworkUnavailable").is_none());
        assert!(!mark_unknown(&mut node, Timestamp::UNIX_EPOCH));
    }
}
