//! A pod with values computed once from its spec.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::host_ports::HostPort;
use crate::resources::Resources;
use api_semantics::selectors::{Labels, labels_match};

/// An inter-pod (anti-)affinity term, with its namespaces and label keys resolved.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// Selector of pods.
    pub selector: Option<LabelSelector>,
    /// Namespaces by name.
    pub namespaces: Vec<String>,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Node label that defines the topology domain.
    pub topology_key: String,
    /// Weight of a preferred term.
    pub weight: i64,
}

impl AffinityTerm {
    fn new(term: &PodAffinityTerm, weight: i64, pod: &Pod) -> Self {
        let own = || vec![pod.metadata.namespace.clone().unwrap_or_default()];
        let named = term.namespaces.clone().filter(|names| !names.is_empty());
        // Absent namespaces mean the pod's own, but only without a namespace selector. An empty
        // selector selects all namespaces.
        let namespaces = match (named, &term.namespace_selector) {
            (Some(names), _) => names,
            (None, None) => own(),
            (None, Some(_)) => Vec::new(),
        };
        Self {
            selector: with_label_keys(term, pod.metadata.labels.as_ref()),
            namespaces,
            namespace_selector: term.namespace_selector.clone(),
            topology_key: term.topology_key.clone(),
            weight,
        }
    }

    /// Returns whether the term matches the pod. `namespaces` holds the labels of namespaces.
    pub fn matches_pod(&self, pod: &Pod, namespaces: &HashMap<String, Labels>) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        // The names and the selector are alternatives: a namespace counts if either matches.
        let here = self.namespaces.iter().any(|name| name == namespace)
            || self.namespace_selector.is_some()
                && labels_match(self.namespace_selector.as_ref(), namespaces.get(namespace));
        here && labels_match(self.selector.as_ref(), pod.metadata.labels.as_ref())
    }
}

/// Adds `matchLabelKeys` and `mismatchLabelKeys` to the selector, unless the API server has already
/// done so.
fn with_label_keys(term: &PodAffinityTerm, labels: Option<&Labels>) -> Option<LabelSelector> {
    // A term without a selector matches no pod, so label keys have nothing to narrow.
    let mut selector = term.label_selector.clone()?;
    let both = [
        ("In", &term.match_label_keys),
        ("NotIn", &term.mismatch_label_keys),
    ];
    for (operator, keys) in both {
        for key in keys.iter().flatten() {
            // A key that the pod lacks is ignored, as the API documents for matchLabelKeys.
            let Some(value) = labels.and_then(|labels| labels.get(key)) else {
                continue;
            };
            let requirement = LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            };
            let present = selector.match_expressions.get_or_insert_default();
            // The API server merges the keys when it admits a pod. Pods of older servers come
            // without.
            if !present.contains(&requirement) {
                present.push(requirement);
            }
        }
    }
    Some(selector)
}

/// A pod and values computed from its spec.
#[derive(Clone, Debug)]
pub struct PodInfo {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Resource requests.
    pub requests: Resources,
    /// Resource requests for scoring.
    pub non_zero: Resources,
    /// Host ports.
    pub host_ports: Vec<HostPort>,
    /// Required affinity terms.
    pub required_affinity: Vec<AffinityTerm>,
    /// Required anti-affinity terms.
    pub required_anti_affinity: Vec<AffinityTerm>,
    /// Preferred affinity terms.
    pub preferred_affinity: Vec<AffinityTerm>,
    /// Preferred anti-affinity terms.
    pub preferred_anti_affinity: Vec<AffinityTerm>,
}

impl PodInfo {
    /// Computes the values from the spec.
    pub fn new(pod: Arc<Pod>) -> Self {
        // A pod without spec cannot come from an API server, but must not stop the scheduler.
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let affinity = spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let away = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let required = |terms: Option<&Vec<PodAffinityTerm>>| {
            terms
                .into_iter()
                .flatten()
                .map(|term| AffinityTerm::new(term, 0, &pod))
                .collect::<Vec<_>>()
        };
        let preferred =
            |terms: Option<&Vec<k8s_openapi::api::core::v1::WeightedPodAffinityTerm>>| {
                let term = |term: &k8s_openapi::api::core::v1::WeightedPodAffinityTerm| {
                    AffinityTerm::new(&term.pod_affinity_term, i64::from(term.weight), &pod)
                };
                terms.into_iter().flatten().map(term).collect::<Vec<_>>()
            };
        Self {
            requests: Resources::requested_by_pod(&pod),
            non_zero: Resources::non_zero_requested(&pod),
            host_ports: HostPort::from_pod_spec(spec),
            required_affinity: required(near.and_then(|near| {
                near.required_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            required_anti_affinity: required(away.and_then(|away| {
                away.required_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            preferred_affinity: preferred(near.and_then(|near| {
                near.preferred_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            preferred_anti_affinity: preferred(away.and_then(|away| {
                away.preferred_during_scheduling_ignored_during_execution
                    .as_ref()
            })),
            pod,
        }
    }

    /// Returns the spec, if the pod has one.
    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Returns the uid.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the labels.
    pub fn labels(&self) -> Option<&Labels> {
        self.pod.metadata.labels.as_ref()
    }

    /// Returns the priority, 0 if none is set.
    pub fn priority(&self) -> i32 {
        self.spec().and_then(|spec| spec.priority).unwrap_or(0)
    }

    /// Returns the node that the pod is bound to, empty if none.
    pub fn node_name(&self) -> &str {
        self.spec()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or_default()
    }

    /// Returns the nominated node of the status.
    pub fn nominated_node(&self) -> Option<&str> {
        let status = self.pod.status.as_ref()?;
        status
            .nominated_node_name
            .as_deref()
            .filter(|name| !name.is_empty())
    }

    /// Returns whether the pod has any affinity or anti-affinity to pods.
    pub fn has_affinity(&self) -> bool {
        !(self.required_affinity.is_empty()
            && self.required_anti_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn pod_with_term(labels: Value, term: Value) -> PodInfo {
        let object = json!({"metadata": {"name": "p", "namespace": "ns", "labels": labels},
            "spec": {"containers": [], "affinity": {"podAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        PodInfo::new(Arc::new(serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn label_keys_become_requirements_with_the_values_of_the_pod() {
        let term = json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["rev", "absent"],
            "mismatchLabelKeys": ["tenant"]});
        let pod = pod_with_term(json!({"rev": "1", "tenant": "a"}), term);
        let selector = pod.required_affinity[0].selector.clone().unwrap();
        let found: Vec<_> = selector
            .match_expressions
            .iter()
            .flatten()
            .map(|e| format!("{} {} {:?}", e.key, e.operator, e.values.clone().unwrap()))
            .collect();
        assert_eq!(found, ["rev In [\"1\"]", "tenant NotIn [\"a\"]"]);
    }

    #[test]
    fn label_key_that_the_api_server_merged_is_not_added_twice() {
        let merged =
            json!({"matchExpressions": [{"key": "rev", "operator": "In", "values": ["1"]}]});
        let term =
            json!({"topologyKey": "zone", "labelSelector": merged, "matchLabelKeys": ["rev"]});
        let pod = pod_with_term(json!({"rev": "1"}), term);
        let selector = pod.required_affinity[0].selector.clone().unwrap();
        assert_eq!(selector.match_expressions.map(|all| all.len()), Some(1));
    }

    #[test]
    fn term_without_a_selector_matches_no_pod() {
        let term = json!({"topologyKey": "zone", "matchLabelKeys": ["rev"]});
        let pod = pod_with_term(json!({"rev": "1"}), term);
        assert!(!pod.required_affinity[0].matches_pod(&pod.pod, &HashMap::new()));
    }
}
