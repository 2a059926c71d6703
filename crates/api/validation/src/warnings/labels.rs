//! Deprecated labels of nodes.

use crate::field::Path;
use api_meta::tree::{entries, get, list, text};
use serde_json::Value;

const DEPRECATED: [(&str, &str); 8] = [
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
];

/// Returns what to say about a node's label, if it is deprecated.
pub(super) fn deprecation(label: &str) -> Option<&'static str> {
    DEPRECATED
        .iter()
        .find(|(known, _)| *known == label)
        .map(|(_, text)| *text)
}

/// Warns about the keys of the expressions in `parent.matchExpressions`.
pub(super) fn expression_warnings(parent: &Value, path: &Path<'_>) -> Vec<String> {
    let path = path.child("matchExpressions");
    let all = list(parent, "matchExpressions").iter().enumerate();
    all.filter_map(|(i, expression)| {
        let key = text(expression, "key");
        let at = path.index(i);
        deprecation(key).map(|why| format!("{}: {key} is {why}", at.child("key")))
    })
    .collect()
}

/// Warns about a label selector of nodes.
pub(super) fn selector_warnings(selector: &Value, path: &Path<'_>) -> Vec<String> {
    let mut warnings = expression_warnings(selector, path);
    let labels = path.child("matchLabels");
    for (label, _) in entries(selector, "matchLabels") {
        if let Some(why) = deprecation(label) {
            warnings.push(format!("{}: {why}", labels.child(label)));
        }
    }
    warnings
}

pub(super) fn runtime_class_warnings(object: &Value) -> Vec<String> {
    entries(get(object, "scheduling"), "nodeSelector")
        .filter_map(|(label, _)| deprecation(label))
        .map(|why| format!("scheduling.nodeSelector: {why}"))
        .collect()
}
