//! Matches nodes with a DaemonSet: should a node run a pod, and may a pod there stay.

use api_semantics::selectors::pod_allows_node;
use api_semantics::tolerations::any_tolerates;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, PodSpec, Toleration};

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
pub struct NodeMatcher {
    template: PodSpec,
    tolerations: Vec<Toleration>,
}

impl NodeMatcher {
    /// Parses the template.
    pub fn new(set: &DaemonSet) -> Self {
        let template = set
            .spec
            .as_ref()
            .and_then(|s| s.template.spec.clone())
            .unwrap_or_default();
        Self {
            tolerations: pod::list_tolerations(&template),
            template,
        }
    }

    /// Matches one node.
    pub fn match_node(&self, node: &Node) -> Fit {
        let named = self.template.node_name.as_deref().filter(|n| !n.is_empty());
        if named.is_some_and(|n| n != node.name()) || !pod_allows_node(&self.template, node) {
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
                // Taint eviction would delete the pod, so creating it would loop.
                "NoExecute" => {
                    fit = Fit {
                        run: false,
                        stay: false,
                    }
                }
                // A running pod is not affected by NoSchedule and stays.
                "NoSchedule" => fit.run = false,
                _ => {}
            }
        }
        fit
    }
}
