//! Approval of definitions in Kubernetes' own groups.

use crate::definition::group;
use api_meta::Meta;
use api_strategy::definition::Condition;
use api_validation::{
    APPROVAL_ANNOTATION as ANNOTATION, Approval, is_protected_group, read_approval,
};
use serde_json::Value;

const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Returns the condition of a definition in a protected group; `None` for other groups.
pub(crate) fn approval_condition(definition: &Value) -> Option<Condition> {
    if !is_protected_group(group(definition)) {
        return None;
    }
    let annotation = definition
        .metadata()
        .and_then(|metadata| metadata.get("annotations")?.get(ANNOTATION)?.as_str())
        .unwrap_or_default();
    let (status, reason, message) = match read_approval(definition) {
        Approval::Missing => {
            let message =
                format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}");
            ("False", "MissingAnnotation", message)
        }
        Approval::Bypassed => {
            let message = format!("not approved: {annotation:?}");
            ("False", "UnapprovedAnnotation", message)
        }
        Approval::Approved => {
            let message = format!("approved in {annotation}");
            ("True", "ApprovedAnnotation", message)
        }
        Approval::Invalid => {
            let message = format!(
                "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \
                 \"unapproved\", {SEE}"
            );
            ("False", "InvalidAnnotation", message)
        }
    };
    Some(Condition::new(KIND, status, reason, message))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn condition(group: &str, annotation: &str) -> Option<Condition> {
        approval_condition(
            &json!({"metadata": {"annotations": {ANNOTATION: annotation}},
            "spec": {"group": group}}),
        )
    }

    #[test]
    fn only_groups_of_kubernetes_are_protected() {
        for (group, protected) in [
            ("k8s.io", true),
            ("a.k8s.io", true),
            ("kubernetes.io", true),
            ("a.b.kubernetes.io", true),
            ("notk8s.io", false),
            ("k8s.io.example.com", false),
            ("example.com", false),
            ("apps", false),
        ] {
            assert_eq!(condition(group, "").is_some(), protected, "{group}");
        }
    }

    #[test]
    fn annotation_decides_status_and_reason() {
        for (annotation, status, reason) in [
            ("", "False", "MissingAnnotation"),
            (
                "https://github.com/kubernetes/kubernetes/pull/78458",
                "True",
                "ApprovedAnnotation",
            ),
            (
                "unapproved, request not yet submitted",
                "False",
                "UnapprovedAnnotation",
            ),
            ("yes", "False", "InvalidAnnotation"),
            ("/path/only", "False", "InvalidAnnotation"),
        ] {
            let found = condition("a.k8s.io", annotation).unwrap();
            assert_eq!(
                (found.status, found.reason),
                (status, reason),
                "{annotation}"
            );
        }
        assert_eq!(
            condition("a.k8s.io", "unapproved, x").unwrap().message,
            "not approved: \"unapproved, x\""
        );
    }
}
