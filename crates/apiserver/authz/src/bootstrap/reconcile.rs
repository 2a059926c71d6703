//! Computes the writes after which a stored object holds at least the policy's content.

use super::AUTOUPDATE;
use crate::rbac::Rule;
use serde_json::{Value, json};

/// A write that reconciliation needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The object does not exist.
    Create(Value),
    /// The stored object lacks content; holds the whole new object with the stored metadata.
    Update(Value),
    /// A binding to another role: delete and create, because `roleRef` is immutable.
    Recreate(Value),
}

/// Returns the write after which `stored` (None: absent) holds the content of `desired`; None if it
/// already does, or has opted out.
pub fn reconcile_object(stored: Option<&Value>, desired: &Value) -> Option<Write> {
    let Some(stored) = stored else {
        return Some(Write::Create(desired.clone()));
    };
    // The administrator's way to keep own changes of a bootstrap object.
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return None;
    }
    let mut merged = stored.clone();
    if desired.get("roleRef").is_some() {
        if stored.get("roleRef") != desired.get("roleRef") {
            // The API rejects a change of roleRef, so that a binding can not silently gain rights.
            return Some(Write::Recreate(desired.clone()));
        }
        // Only additions: subjects that an administrator added stay over restarts and upgrades.
        merge_subjects(&mut merged, desired);
    } else {
        merge_rules(&mut merged, stored, desired);
    }
    for field in ["labels", "annotations"] {
        merge_map(&mut merged, desired, field);
    }
    // No write without a change, or each start of a server would wake every watcher of roles.
    (merged != *stored).then_some(Write::Update(merged))
}

fn merge_map(merged: &mut Value, desired: &Value, field: &str) {
    for (key, value) in desired["metadata"][field].as_object().into_iter().flatten() {
        // A changed value is the administrator's; only missing keys are added.
        if merged["metadata"][field].get(key).is_none() {
            merged["metadata"][field][key.as_str()] = value.clone();
        }
    }
}

fn merge_subjects(merged: &mut Value, desired: &Value) {
    for subject in desired["subjects"].as_array().into_iter().flatten() {
        if merged["subjects"]
            .as_array()
            .is_some_and(|have| have.contains(subject))
        {
            continue;
        }
        match merged.get_mut("subjects").and_then(Value::as_array_mut) {
            Some(have) => have.push(subject.clone()),
            None => merged["subjects"] = json!([subject]),
        }
    }
}

fn merge_rules(merged: &mut Value, stored: &Value, desired: &Value) {
    if let Some(aggregation) = desired.get("aggregationRule") {
        // An aggregation rule that an administrator changed is kept.
        if stored.get("aggregationRule").is_none_or(Value::is_null) {
            merged["aggregationRule"] = aggregation.clone();
        }
        return;
    }
    let have = Rule::parse_list(&stored["rules"]);
    for rule in desired["rules"].as_array().into_iter().flatten() {
        // Compared by permission, not by text: an administrator may have merged rules.
        let singles = Rule::from_value(rule).split_singles();
        if singles
            .iter()
            .all(|single| have.iter().any(|h| h.covers_single(single)))
        {
            continue;
        }
        match merged.get_mut("rules").and_then(Value::as_array_mut) {
            Some(rules) => rules.push(rule.clone()),
            None => merged["rules"] = json!([rule]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {AUTOUPDATE: "true"}}, "rules": rules})
    }

    #[test]
    fn reconciled_role_gains_missing_rules_and_keeps_others() {
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]});
        let desired = role(json!([pods]));
        assert_eq!(
            reconcile_object(None, &desired),
            Some(Write::Create(desired.clone()))
        );
        assert_eq!(reconcile_object(Some(&desired), &desired), None);
        let more = role(json!([pods, nodes]));
        assert_eq!(reconcile_object(Some(&more), &desired), None);
        assert_eq!(
            reconcile_object(Some(&role(json!([nodes]))), &desired),
            Some(Write::Update(role(json!([nodes, pods]))))
        );
        let mut out = role(json!([]));
        out["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(reconcile_object(Some(&out), &desired), None);
    }

    #[test]
    fn bindings_keep_their_subjects() {
        let make = |role: &str, subjects: Value| json!({"metadata": {"name": "x"}, "roleRef": {"name": role}, "subjects": subjects});
        let desired = make("r", json!([{"kind": "User", "name": "a"}]));
        let stored = make("r", json!([{"kind": "User", "name": "b"}]));
        let both = make(
            "r",
            json!([{"kind": "User", "name": "b"}, {"kind": "User", "name": "a"}]),
        );
        assert_eq!(
            reconcile_object(Some(&stored), &desired),
            Some(Write::Update(both))
        );
        assert_eq!(
            reconcile_object(Some(&make("other", json!([]))), &desired),
            Some(Write::Recreate(desired.clone()))
        );
    }

    #[test]
    fn aggregation_rule_is_added_and_aggregated_rules_are_kept() {
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let mut desired = role(Value::Null);
        desired["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"x": "true"}}]});
        let stored = role(rules.clone());
        let Some(Write::Update(merged)) = reconcile_object(Some(&stored), &desired) else {
            panic!("the stored role lacks the aggregation rule");
        };
        assert_eq!(
            (&merged["rules"], &merged["aggregationRule"]),
            (&rules, &desired["aggregationRule"])
        );
    }

    #[test]
    fn labels_of_the_cluster_admin_are_not_overwritten() {
        let mut stored = role(json!([]));
        stored["metadata"]["labels"] = json!({"a": "other"});
        let mut desired = role(json!([]));
        desired["metadata"]["labels"] = json!({"a": "b", "c": "d"});
        let Some(Write::Update(merged)) = reconcile_object(Some(&stored), &desired) else {
            panic!("the stored role lacks a label");
        };
        assert_eq!(
            merged["metadata"]["labels"],
            json!({"a": "other", "c": "d"})
        );
    }
}
