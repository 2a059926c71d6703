//! Changes of a pod's placement while it has scheduling gates: the choice of nodes may only become
//! narrower.

use crate::field::{Errors, Path};
use api_meta::tree::{entries, equal, get, has, list};
use serde_json::Value;

/// Checks that node labels were only added.
pub fn validate_narrower_node_selector(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if entries(old, "nodeSelector").any(|(k, v)| get(new, "nodeSelector").get(k) != Some(v)) {
        errors.invalid(
            path,
            get(new, "nodeSelector").clone(),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        );
    }
}

/// Checks that requirements were only added to the required terms of the node affinity.
pub fn validate_narrower_node_affinity(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let required = |spec| get(get(get(spec, "affinity"), "nodeAffinity"), REQUIRED);
    if !has(get(get(old, "affinity"), "nodeAffinity"), REQUIRED) {
        return;
    }
    let (before, after) = (
        list(required(old), "nodeSelectorTerms"),
        list(required(new), "nodeSelectorTerms"),
    );
    let at = path.child("nodeAffinity");
    let at = at.child(REQUIRED);
    let at = at.child("nodeSelectorTerms");
    // Terms are alternatives: one more term widens the choice, one less may remove what an
    // admission controller relied on.
    if !before.is_empty() && before.len() != after.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(&at, after.to_vec(), detail);
        return;
    }
    for (i, (before, after)) in before.iter().zip(after).enumerate() {
        if !is_narrower(before, after) {
            errors.invalid(
                &at.index(i),
                after.clone(),
                "only additions are allowed (no mutations or deletions)",
            );
        }
    }
}

/// Returns whether a term keeps its requirements. An empty term matches nothing, so any addition
/// would widen it.
fn is_narrower(before: &Value, after: &Value) -> bool {
    const LISTS: [&str; 2] = ["matchExpressions", "matchFields"];
    if LISTS.iter().all(|field| list(before, field).is_empty()) {
        return LISTS.iter().all(|field| list(after, field).is_empty());
    }
    LISTS.iter().all(|field| {
        let kept = list(before, field);
        list(after, field)
            .get(..kept.len())
            .is_some_and(|start| start.iter().zip(kept).all(|(a, b)| equal(a, b)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn node_affinity_may_only_become_narrower() {
        let term = |keys: &[&str]| {
            let all: Vec<Value> = keys
                .iter()
                .map(|key| json!({"key": key, "operator": "Exists"}))
                .collect();
            json!({"matchExpressions": all})
        };
        let spec = |terms: &[Value]| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        for (before, after, expect) in [
            (json!({}), spec(&[term(&["a"])]), 0),
            (spec(&[term(&["a"])]), spec(&[term(&["a"])]), 0),
            (spec(&[term(&["a"])]), spec(&[term(&["a", "b"])]), 0),
            (spec(&[term(&["a"])]), spec(&[term(&["b", "a"])]), 1),
            (
                spec(&[term(&["a"])]),
                spec(&[term(&["a"]), term(&["b"])]),
                1,
            ),
            (spec(&[term(&["a"])]), json!({}), 1),
            (spec(&[term(&[])]), spec(&[term(&["a"])]), 1),
        ] {
            let mut errors = Errors::default();
            validate_narrower_node_affinity(
                &after,
                &before,
                &Path::ROOT.child("affinity"),
                &mut errors,
            );
            assert_eq!(errors.0.len(), expect, "{before} {after}: {:?}", errors.0);
        }
    }
}
