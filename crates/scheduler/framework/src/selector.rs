//! Label and node selectors over typed objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels as objects carry them.
pub type Labels = BTreeMap<String, String>;

/// Returns whether a label selector matches. An empty one matches everything; None matches nothing.
pub fn labels_match(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let value = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, want)| value(key) == Some(want));
    equal
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| {
                let values = requirement.values.as_deref().unwrap_or_default();
                one_matches(&requirement.operator, values, value(&requirement.key))
            })
}

fn one_matches(operator: &str, values: &[String], found: Option<&str>) -> bool {
    let listed = |found: &str| values.iter().any(|value| value == found);
    match operator {
        "In" => found.is_some_and(listed),
        "NotIn" => !found.is_some_and(listed),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" | "Lt" => {
            let number = |text: &str| text.parse::<i64>().ok();
            let bound = values
                .first()
                .filter(|_| values.len() == 1)
                .and_then(|value| number(value));
            match (found.and_then(number), bound) {
                (Some(found), Some(bound)) => {
                    (operator == "Gt" && found > bound) || (operator == "Lt" && found < bound)
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn requirement_matches(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    one_matches(
        &requirement.operator,
        requirement.values.as_deref().unwrap_or_default(),
        found,
    )
}

/// Returns whether one term matches a node. An empty term matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |key: &str| node.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let field = |key: &str| {
        if key == "metadata.name" {
            node.metadata.name.as_deref()
        } else {
            None
        }
    };
    expressions
        .iter()
        .all(|requirement| requirement_matches(requirement, label(&requirement.key)))
        && fields
            .iter()
            .all(|requirement| requirement_matches(requirement, field(&requirement.key)))
}

/// Returns whether any term matches a node.
pub fn node_matches(selector: &NodeSelector, node: &Node) -> bool {
    selector
        .node_selector_terms
        .iter()
        .any(|term| term_matches(term, node))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn requirements() {
        let values = ["1".to_owned(), "5".to_owned()];
        let cases = [
            ("In", &values[..], Some("5"), true),
            ("In", &values[..], None, false),
            ("NotIn", &values[..], None, true),
            ("NotIn", &values[..], Some("1"), false),
            ("Exists", &[], Some(""), true),
            ("DoesNotExist", &[], None, true),
            ("Gt", &values[..1], Some("2"), true),
            ("Gt", &values[..1], Some("1"), false),
            ("Lt", &values[..1], Some("0"), true),
            ("Lt", &values[..1], Some("x"), false),
            ("Gt", &values[..], Some("9"), false),
        ];
        for (operator, values, found, want) in cases {
            assert_eq!(
                one_matches(operator, values, found),
                want,
                "{operator} {found:?}"
            );
        }
    }
}
