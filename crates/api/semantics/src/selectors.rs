//! Label selectors and node selectors of typed objects.
//!
//! A requirement that upstream can't parse (an unknown operator, no value, a bound that is no
//! integer) matches nothing, and so does the selector or term that has it. The API server admits
//! none of them.

use std::collections::BTreeMap;

use api_meta::labels::Operator;
use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Returns whether a label selector matches. An empty one matches everything; None matches nothing.
pub fn labels_match(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let mut requirements = selector.match_expressions.iter().flatten();
    labels_match_map(selector.match_labels.as_ref(), labels)
        && requirements.all(|requirement| {
            let operator = Operator::from_name(&requirement.operator)
                .filter(|o| !matches!(o, Operator::GreaterThan | Operator::LessThan));
            let values = requirement.values.as_deref().unwrap_or_default();
            requirement_matches(operator, values, label_value(labels, &requirement.key))
        })
}

/// Returns whether every pair of a plain selector is among the labels; None selects everything.
pub fn labels_match_map(selector: Option<&Labels>, labels: Option<&Labels>) -> bool {
    let mut pairs = selector.into_iter().flatten();
    pairs.all(|(key, expected)| label_value(labels, key) == Some(expected))
}

/// Returns whether a node selector matches a node: any of its terms does.
pub fn node_matches(selector: &NodeSelector, node: &Node) -> bool {
    // Terms are alternatives, and the requirements of one term are not.
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| term_matches(term, node))
}

/// Returns whether one term of a node selector matches a node. An empty term matches nothing.
pub fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let labels = node.metadata.labels.as_ref();
    expressions.iter().all(|requirement| {
        let operator = Operator::from_name(&requirement.operator);
        let values = requirement.values.as_deref().unwrap_or_default();
        requirement_matches(operator, values, label_value(labels, &requirement.key))
    }) && fields.iter().all(|requirement| {
        let values = requirement.values.as_deref().unwrap_or_default();
        field_matches(node, &requirement.key, &requirement.operator, values)
    })
}

/// Returns whether a pod's node selector and its required node affinity match a node.
pub fn pod_allows_node(spec: &PodSpec, node: &Node) -> bool {
    let affinity = spec.affinity.as_ref();
    let required = affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    labels_match_map(spec.node_selector.as_ref(), node.metadata.labels.as_ref())
        && required.is_none_or(|selector| node_matches(selector, node))
}

fn label_value<'l>(labels: Option<&'l Labels>, key: &str) -> Option<&'l str> {
    labels?.get(key).map(String::as_str)
}

fn requirement_matches(operator: Option<Operator>, values: &[String], found: Option<&str>) -> bool {
    let Some(operator) = operator else {
        return false;
    };
    let is_valid = match operator {
        Operator::In | Operator::NotIn => !values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => values.is_empty(),
        // An invalid bound matches nothing.
        Operator::GreaterThan | Operator::LessThan => true,
    };
    is_valid && operator.matches(values, found)
}

/// A field has one value; an absent or unknown one is empty, as in field selectors.
fn field_matches(node: &Node, key: &str, operator: &str, values: &[String]) -> bool {
    let [expected] = values else { return false };
    // Validation admits no other field. The DaemonSet controller binds its pods to nodes by it.
    let found = match key {
        "metadata.name" => node.metadata.name.as_deref().unwrap_or_default(),
        _ => "",
    };
    match operator {
        "In" => found == expected,
        "NotIn" => found != expected,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_meta::Selector;
    use serde_json::Value;

    fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn label_selectors_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::LABEL_SELECTORS).unwrap();
        for case in cases {
            let labels: Labels = parse(&case["labels"]);
            let selector: Option<LabelSelector> = parse(&case["selector"]);
            let got = labels_match(selector.as_ref(), Some(&labels));
            assert_eq!(got, case["matches"], "{case}");
            // Trees use the selectors of `api-meta`; validation has rejected invalid requirements.
            if case.get("invalid").is_none() {
                let tree = Selector::from_label_selector(&case["selector"]).unwrap();
                let got = tree.is_some_and(|s| s.matches_map(case["labels"].as_object()));
                assert_eq!(got, case["matches"], "{case}");
            }
        }
    }

    #[test]
    fn node_selector_terms_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::NODE_SELECTOR_TERMS).unwrap();
        for case in cases {
            let got = term_matches(&parse(&case["term"]), &parse(&case["node"]));
            assert_eq!(got, case["matches"], "{case}");
        }
    }

    #[test]
    fn pod_needs_its_node_selector_and_one_term_of_its_affinity() {
        let node = parse(&serde_json::json!({"metadata": {"name": "n", "labels": {"a": "1"}}}));
        let term = |key: &str| serde_json::json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        for (plain, terms, expected) in [
            ("1", vec![], false),
            ("1", vec![term("x")], false),
            ("1", vec![term("x"), term("a")], true),
            ("2", vec![term("a")], false),
        ] {
            let spec = serde_json::json!({"containers": [], "nodeSelector": {"a": plain},
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": terms}}}});
            assert_eq!(pod_allows_node(&parse(&spec), &node), expected, "{spec}");
        }
    }
}
