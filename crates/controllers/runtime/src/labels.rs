//! Label selectors: `LabelSelector` objects and plain maps.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub use api_semantics::selectors::{Labels, labels_match, labels_match_map};

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
    fn selector_without_requirements_is_empty() {
        for (selector, expect) in [
            (json!({}), true),
            (json!({"matchLabels": {}, "matchExpressions": []}), true),
            (json!({"matchLabels": {"a": "b"}}), false),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
                false,
            ),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(is_empty(&parsed), expect, "{selector}");
        }
        assert!(is_empty(&from_map(None)));
    }
}
