//! Changes of labels that a kubelet may not make.

use api_meta::Meta;
use api_semantics::nodes::may_set_label;
use serde_json::Value;

/// Returns the changed labels that a kubelet may not change, sorted.
pub fn forbidden_changes(new: &Value, old: &Value) -> Vec<String> {
    let keys = |v: &Value| {
        v.labels()
            .into_iter()
            .flat_map(|l| l.keys().cloned())
            .collect::<Vec<_>>()
    };
    let mut changed: Vec<String> = keys(new).into_iter().chain(keys(old)).collect();
    changed.sort();
    // Removed labels count too: a kubelet must not drop a restricting one.
    changed.dedup();
    changed.retain(|key| new.label(key) != old.label(key) && !may_set_label(key));
    changed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_of_others_can_neither_be_set_nor_changed_nor_removed() {
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::NODE_LABELS).unwrap();
        for case in cases {
            let label = case["label"].as_str().unwrap();
            let with = |value: &str| json!({"metadata": {"labels": {label: value}}});
            let expected = match case["allowed"].as_bool().unwrap() {
                true => vec![],
                false => vec![label.to_owned()],
            };
            for (new, old) in [
                (with("a"), Value::Null),
                (with("a"), with("b")),
                (json!({}), with("b")),
            ] {
                assert_eq!(forbidden_changes(&new, &old), expected, "{label}");
            }
            assert!(
                forbidden_changes(&with("a"), &with("a")).is_empty(),
                "{label}"
            );
        }
    }
}
