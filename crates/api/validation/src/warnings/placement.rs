//! Warnings about selectors of nodes and pods.

use crate::field::Path;
use api_meta::names;
use api_meta::tree::{entries, get, has, list, text};
use serde_json::Value;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";
const NODE_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
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
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];

fn find_deprecation(label: &str) -> Option<&'static str> {
    NODE_LABELS
        .iter()
        .find(|(key, _)| *key == label)
        .map(|(_, message)| *message)
}

/// Warns about deprecated labels of nodes, and about selectors that match nothing.
pub(super) fn warn_about_placement(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let at = path.child("nodeSelector");
    for (key, _) in entries(spec, "nodeSelector") {
        if let Some(message) = find_deprecation(key) {
            warnings.push(format!("{}: {message}", at.key(key)));
        }
    }
    let at = path.child("affinity");
    let at = at.child("nodeAffinity");
    let affinity = get(get(spec, "affinity"), "nodeAffinity");
    let required = at.child(REQUIRED);
    let terms = required.child("nodeSelectorTerms");
    let all = list(get(affinity, REQUIRED), "nodeSelectorTerms");
    for (i, term) in all.iter().enumerate() {
        warn_about_node_term(term, false, &terms.index(i), warnings);
    }
    let preferred = at.child(PREFERRED);
    for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
        let at = preferred.index(i);
        warn_about_node_term(
            get(item, "preference"),
            true,
            &at.child("preference"),
            warnings,
        );
    }
    let at = path.child("topologySpreadConstraints");
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().enumerate() {
        let at = at.index(i);
        let key = text(constraint, "topologyKey");
        if let Some(message) = find_deprecation(key) {
            warnings.push(format!("{}: {key} is {message}", at.child("topologyKey")));
        }
        if !has(constraint, "labelSelector") {
            warnings.push(format!("{}: {NO_SELECTOR}", at.child("labelSelector")));
        }
    }
}

fn warn_about_node_term(
    term: &Value,
    with_values: bool,
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    let at = path.child("matchExpressions");
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        let at = at.index(i);
        let key = text(expression, "key");
        if let Some(message) = find_deprecation(key) {
            warnings.push(format!("{}: {key} is {message}", at.child("key")));
        }
        let at = at.child("values");
        let values = list(expression, "values").iter().enumerate();
        for (j, value) in values.filter(|_| with_values) {
            let value = value.as_str().unwrap_or_default();
            for problem in names::label_value(value) {
                warnings.push(format!("{}: {value} is invalid, {problem}", at.index(j)));
            }
        }
    }
}

/// Warns about terms of pod affinities without a selector.
pub(super) fn warn_about_pod_affinity(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let path = path.child("affinity");
    for field in ["podAffinity", "podAntiAffinity"] {
        let affinity = get(get(spec, "affinity"), field);
        let path = path.child(field);
        let at = path.child(REQUIRED);
        for (i, term) in list(affinity, REQUIRED).iter().enumerate() {
            if !has(term, "labelSelector") {
                warnings.push(format!(
                    "{}: {NO_SELECTOR}",
                    at.index(i).child("labelSelector")
                ));
            }
        }
        let at = path.child(PREFERRED);
        for (i, item) in list(affinity, PREFERRED).iter().enumerate() {
            if !has(get(item, "podAffinityTerm"), "labelSelector") {
                let at = at.index(i);
                let at = at.child("podAffinityTerm");
                warnings.push(format!("{}: {NO_SELECTOR}", at.child("labelSelector")));
            }
        }
    }
}
