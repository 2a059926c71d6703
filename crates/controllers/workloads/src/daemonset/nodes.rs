//! Matches nodes with a DaemonSet: should a node run a pod, and may a pod there stay.

use api_semantics::tolerations::any_tolerates;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration,
};

use controllers_runtime::Meta;

use super::pod;

/// The result for one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The node should run a pod.
    pub run: bool,
    /// An existing pod may stay.
    pub stay: bool,
}

/// Matches nodes with one DaemonSet; parses its template once.
pub struct Judge {
    template: PodSpec,
    tolerations: Vec<Toleration>,
}

impl Judge {
    /// Parses the template.
    pub fn new(set: &DaemonSet) -> Self {
        let template = set
            .spec
            .as_ref()
            .and_then(|s| s.template.spec.clone())
            .unwrap_or_default();
        Self {
            tolerations: pod::tolerations(&template),
            template,
        }
    }

    /// Matches one node.
    pub fn fit(&self, node: &Node) -> Fit {
        let named = self.template.node_name.as_deref().filter(|n| !n.is_empty());
        if named.is_some_and(|n| n != node.name()) || !selected(&self.template, node) {
            return Fit {
                run: false,
                stay: false,
            };
        }
        let taints = node.spec.iter().flat_map(|s| s.taints.iter().flatten());
        let mut fit = Fit {
            run: true,
            stay: true,
        };
        for taint in taints.filter(|t| !any_tolerates(&self.tolerations, t)) {
            match taint.effect.as_str() {
                "NoExecute" => {
                    fit = Fit {
                        run: false,
                        stay: false,
                    }
                }
                "NoSchedule" => fit.run = false,
                _ => {}
            }
        }
        fit
    }
}

fn selected(template: &PodSpec, node: &Node) -> bool {
    let label = |key: &str| node.label(key);
    let plain = template
        .node_selector
        .iter()
        .flatten()
        .all(|(k, v)| label(k) == Some(v));
    let required = template
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = required.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    plain && required.is_none_or(|r| r.node_selector_terms.iter().any(|t| term(t, node)))
}

/// Returns whether one term of a node selector matches; an empty term matches nothing.
fn term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let by_label = term.match_expressions.iter().flatten();
    let by_field = term.match_fields.iter().flatten();
    let some = by_label.clone().next().is_some() || by_field.clone().next().is_some();
    let field = |key: &str| (key == "metadata.name").then(|| node.name());
    some && by_label.into_iter().all(|r| holds(r, node.label(&r.key)))
        && by_field.into_iter().all(|r| holds(r, field(&r.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = || {
        requirement
            .values
            .iter()
            .flatten()
            .any(|v| Some(v.as_str()) == value)
    };
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
    let bound = number(
        requirement
            .values
            .iter()
            .flatten()
            .next()
            .map(String::as_str),
    );
    match requirement.operator.as_str() {
        "In" => value.is_some() && listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound).is_some_and(|(v, b)| v > b),
        "Lt" => number(value).zip(bound).is_some_and(|(v, b)| v < b),
        _ => false,
    }
}
