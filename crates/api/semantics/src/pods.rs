//! Phase and conditions of pods.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};

/// Returns `status.phase`, empty if absent.
pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Returns whether the pod has terminated.
pub fn is_terminal(pod: &Pod) -> bool {
    is_terminal_phase(phase(pod))
}

/// Returns whether a pod with this status has terminated.
pub fn is_terminal_status(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal_phase)
}

/// Returns whether a pod in this phase has terminated.
pub fn is_terminal_phase(phase: &str) -> bool {
    // `Unknown` is not final: the kubelet of an unreachable node may still run the pod.
    matches!(phase, "Succeeded" | "Failed")
}

/// Returns a condition by its type.
pub fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Returns whether the pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn phases_are_terminal_as_the_table_says() {
        let cases: Vec<serde_json::Value> = serde_json::from_str(crate::cases::POD_PHASES).unwrap();
        for case in cases {
            let phase = case["phase"].as_str().unwrap();
            assert_eq!(is_terminal_phase(phase), case["terminal"], "{case}");
        }
    }

    #[test]
    fn phases_and_conditions_decide() {
        let ready = |status: &str| json!([{"type": "X", "status": "True"}, {"type": "Ready", "status": status}]);
        for (status, terminal, is_now_ready) in [
            (json!(null), false, false),
            (json!({}), false, false),
            (json!({"phase": "Pending"}), false, false),
            (
                json!({"phase": "Running", "conditions": ready("True")}),
                false,
                true,
            ),
            (
                json!({"phase": "Running", "conditions": ready("False")}),
                false,
                false,
            ),
            (
                json!({"phase": "Running", "conditions": ready("Unknown")}),
                false,
                false,
            ),
            (json!({"phase": "Succeeded"}), true, false),
            (json!({"phase": "Failed"}), true, false),
        ] {
            let tree = json!({"status": status});
            let typed: Pod = serde_json::from_value(tree.clone()).unwrap();
            for pod in [typed, crate::tree::pod(&tree)] {
                assert_eq!(
                    (is_terminal(&pod), is_ready(&pod)),
                    (terminal, is_now_ready),
                    "{tree}"
                );
            }
        }
    }
}
