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
