//! A pod with values computed once from its spec.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::node::HostPort;
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
        let here = self.namespaces.iter().any(|name| name == namespace)
            || self.namespace_selector.is_some()
                && labels_match(self.namespace_selector.as_ref(), namespaces.get(namespace));
        here && labels_match(self.selector.as_ref(), pod.metadata.labels.as_ref())
    }
}

/// Adds `matchLabelKeys` and `mismatchLabelKeys` to the selector, unless the API server has already
/// done so.
fn with_label_keys(term: &PodAffinityTerm, labels: Option<&Labels>) -> Option<LabelSelector> {
    let mut selector = term.label_selector.clone()?;
    let both = [
        ("In", &term.match_label_keys),
        ("NotIn", &term.mismatch_label_keys),
    ];
    for (operator, keys) in both {
        for key in keys.iter().flatten() {
            let Some(value) = labels.and_then(|labels| labels.get(key)) else {
                continue;
            };
            let requirement = LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            };
            let present = selector.match_expressions.get_or_insert_default();
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
