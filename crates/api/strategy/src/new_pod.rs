//! Fields of new pods that follow from others.

use api_meta::tree::{at_mut, each_mut, equal, get, has, list, make, set, text, texts};
use serde_json::{Value, json};
use std::collections::HashSet;

const AFFINITIES: [&str; 2] = ["podAffinity", "podAntiAffinity"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Adds the pod's own labels of `matchLabelKeys` and `mismatchLabelKeys` to the selectors of its
/// affinities and topology spread constraints (KEP-3633, KEP-3243). The scheduler and other readers
/// then need not know the keys.
pub(crate) fn apply_label_keys(pod: &mut Value) {
    let labels = get(get(pod, "metadata"), "labels").clone();
    let Some(spec) = at_mut(pod, "spec") else {
        return;
    };
    for constraint in each_mut(spec, "topologySpreadConstraints") {
        add_requirements(constraint, "matchLabelKeys", "In", &labels);
    }
    let Some(affinity) = at_mut(spec, "affinity") else {
        return;
    };
    for field in AFFINITIES {
        let Some(affinity) = at_mut(affinity, field) else {
            continue;
        };
        each_mut(affinity, REQUIRED).for_each(|term| apply_term_keys(term, &labels));
        for item in each_mut(affinity, PREFERRED) {
            if let Some(term) = at_mut(item, "podAffinityTerm") {
                apply_term_keys(term, &labels);
            }
        }
    }
}

fn apply_term_keys(term: &mut Value, labels: &Value) {
    add_requirements(term, "matchLabelKeys", "In", labels);
    add_requirements(term, "mismatchLabelKeys", "NotIn", labels);
}

fn add_requirements(term: &mut Value, field: &str, operator: &str, labels: &Value) {
    let keys: Vec<String> = texts(term, field).into_iter().map(str::to_owned).collect();
    // Without a selector nothing matches, and an added requirement would change that.
    let Some(selector) = at_mut(term, "labelSelector") else {
        return;
    };
    let mut all = list(selector, "matchExpressions").to_vec();
    // The strategy is applied again after admission, and must not add one twice. A set, because a
    // pod may have many thousands of keys.
    let mut known: HashSet<Value> = all.iter().cloned().collect();
    let before = all.len();
    for key in keys {
        // A key that the pod lacks is ignored.
        let Some(value) = labels.get(&key) else {
            continue;
        };
        let requirement = json!({"key": key, "operator": operator, "values": [value]});
        if known.insert(requirement.clone()) {
            all.push(requirement);
        }
    }
    if all.len() > before {
        set(selector, "matchExpressions", all);
    }
}

/// Copies AppArmor profiles from annotations, the only form before v1.30, to the fields that the
/// kubelet reads.
pub(crate) fn copy_apparmor_annotations(pod: &mut Value) {
    let annotations = get(get(pod, "metadata"), "annotations").clone();
    let is_used = annotations
        .as_object()
        .is_some_and(|all| all.keys().any(|key| key.starts_with(APPARMOR)));
    let Some(spec) = at_mut(pod, "spec").filter(|_| is_used) else {
        return;
    };
    if text(get(spec, "os"), "name") == "windows" {
        return;
    }
    let of_pod = get(get(spec, "securityContext"), "appArmorProfile").clone();
    for field in ["initContainers", "containers"] {
        for container in each_mut(spec, field) {
            let key = format!("{APPARMOR}{}", text(container, "name"));
            let has_profile = has(get(container, "securityContext"), "appArmorProfile");
            let profile = read_apparmor_annotation(text(&annotations, &key));
            if let Some(profile) = profile.filter(|p| !has_profile && !equal(p, &of_pod))
                && let Some(context) = make(container, "securityContext")
            {
                set(context, "appArmorProfile", profile);
            }
        }
    }
}

/// Returns the profile that an annotation means, in the form of the field. An invalid one is left
/// to validation.
fn read_apparmor_annotation(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        other => other
            .strip_prefix("localhost/")
            .filter(|name| !name.is_empty() && name.trim() == *name && name.len() <= 4095)
            .map(|name| json!({"type": "Localhost", "localhostProfile": name})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_labels_of_match_keys_are_selected_once() {
        let term = |expressions: Value| {
            json!({"matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["tenant"],
                "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": expressions}})
        };
        let pod = |expressions: Value| {
            json!({"metadata": {"labels": {"rev": "1", "tenant": "t"}}, "spec": {
                "affinity": {"podAffinity": {REQUIRED: [term(expressions.clone())]},
                    "podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": term(expressions)}]}}}})
        };
        let expect = pod(json!([{"key": "rev", "operator": "In", "values": ["1"]},
            {"key": "tenant", "operator": "NotIn", "values": ["t"]}]));
        let mut new = pod(json!([]));
        for round in 1..=2 {
            apply_label_keys(&mut new);
            assert_eq!(new, expect, "round {round}");
        }
    }

    /// A request of 3 MiB has room for many more; each must not be compared with all others.
    #[test]
    fn many_match_keys_are_added_in_linear_time() {
        let keys: Vec<String> = (0..30_000).map(|n| format!("k{n}")).collect();
        let labels: Value = keys.iter().map(|key| (key.clone(), json!("v"))).collect();
        let term = json!({"matchLabelKeys": keys, "labelSelector": {}});
        let mut pod = json!({"metadata": {"labels": labels},
            "spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}}});
        apply_label_keys(&mut pod);
        let added = pod.pointer(&format!(
            "/spec/affinity/podAffinity/{REQUIRED}/0/labelSelector/matchExpressions"
        ));
        assert_eq!(added.and_then(Value::as_array).map(Vec::len), Some(30_000));
    }

    #[test]
    fn match_keys_without_a_selector_select_nothing() {
        let mut pod = json!({"metadata": {"labels": {"rev": "1"}},
            "spec": {"topologySpreadConstraints": [{"matchLabelKeys": ["rev"]}]}});
        let expect = pod.clone();
        apply_label_keys(&mut pod);
        assert_eq!(pod, expect);
    }

    #[test]
    fn apparmor_annotations_become_fields() {
        for (annotation, of_pod, expect) in [
            (
                "localhost/x",
                json!(null),
                json!({"type": "Localhost", "localhostProfile": "x"}),
            ),
            ("unconfined", json!(null), json!({"type": "Unconfined"})),
            ("unconfined", json!({"type": "Unconfined"}), json!(null)),
            ("localhost/", json!(null), json!(null)),
            ("other", json!(null), json!(null)),
        ] {
            let key = format!("{APPARMOR}c");
            let mut pod = json!({"metadata": {"annotations": {key: annotation}}, "spec": {
                "securityContext": {"appArmorProfile": of_pod}, "containers": [{"name": "c"}]}});
            copy_apparmor_annotations(&mut pod);
            let found = pod.pointer("/spec/containers/0/securityContext/appArmorProfile");
            assert_eq!(found.unwrap_or(&Value::Null), &expect, "{annotation}");
        }
    }
}
