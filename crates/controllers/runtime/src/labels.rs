//! Label selectors: `LabelSelector` objects and plain maps.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Returns whether the selector matches the labels. An empty selector matches everything; an
/// unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let get = |key: &str| labels.and_then(|l| l.get(key));
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(k, v)| get(k) == Some(v));
    equal
        && selector.match_expressions.iter().flatten().all(|e| {
            let listed = |v: &String| e.values.iter().flatten().any(|x| x == v);
            match e.operator.as_str() {
                "In" => get(&e.key).is_some_and(listed),
                "NotIn" => !get(&e.key).is_some_and(listed),
                "Exists" => get(&e.key).is_some(),
                "DoesNotExist" => get(&e.key).is_none(),
                _ => false,
            }
        })
}

/// Returns whether every pair of a plain selector map is among the labels.
pub fn matches_map(selector: &Labels, labels: Option<&Labels>) -> bool {
    selector
        .iter()
        .all(|(k, v)| labels.and_then(|l| l.get(k)) == Some(v))
}

/// Returns whether the selector is empty.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector
        .match_labels
        .as_ref()
        .is_none_or(BTreeMap::is_empty)
        && selector
            .match_expressions
            .as_ref()
            .is_none_or(Vec::is_empty)
}

/// Converts a plain map to a selector.
pub fn from_map(map: Option<&Labels>) -> LabelSelector {
    LabelSelector {
        match_labels: map.cloned(),
        match_expressions: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn operators() {
        let labels: Labels = serde_json::from_value(json!({"app": "a", "tier": "x"})).unwrap();
        for (selector, expect) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "a"}}), true),
            (json!({"matchLabels": {"app": "b"}}), false),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["x", "y"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "none", "operator": "In", "values": ["x"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]}),
                false,
            ),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(matches(&parsed, Some(&labels)), expect, "{selector}");
        }
    }
}
