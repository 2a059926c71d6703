//! Builds a daemon's pod: with affinity to its node, and tolerations of node conditions.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use controllers_runtime::{Meta, pods};

use crate::{history, template};

const FIELD: &str = "metadata.name";
const GENERATION: &str = "deprecated.daemonset.template.generation";
const ALWAYS: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Builds a pod for one node.
pub fn build_pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let source = set
        .spec
        .as_ref()
        .map(|s| s.template.clone())
        .unwrap_or_default();
    let mut pod = template::build_pod(set, &source);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(history::POD_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = set.annotation(GENERATION) {
        labels.insert("pod-template-generation".to_owned(), generation.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(list_tolerations(spec));
    let affinity = spec
        .affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default();
    // A field and not a label: the label of the host name may be changed or shared by two nodes.
    let here = NodeSelectorRequirement {
        key: FIELD.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    // The template's own terms are replaced: the node has been matched with them before.
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![here]),
            match_expressions: None,
        }],
    });
    pod
}

/// Returns the template's tolerations and those of every daemon.
pub fn list_tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    // A pod on the host's network does not need the pod network, and often is the one that sets it
    // up.
    let network = ("node.kubernetes.io/network-unavailable", "NoSchedule");
    let extra = (spec.host_network == Some(true)).then_some(network);
    for (key, effect) in ALWAYS.into_iter().chain(extra) {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !all.contains(&toleration) {
            all.push(toleration);
        }
    }
    all
}

/// Returns the node that a pod is bound to or has affinity to.
pub fn target_node(pod: &Pod) -> Option<String> {
    let bound = pods::node_name(pod);
    if !bound.is_empty() {
        return Some(bound.to_owned());
    }
    // A pod that waits for the scheduler counts as well, or its node would get a second one.
    let affinity = pod
        .spec
        .as_ref()?
        .affinity
        .as_ref()?
        .node_affinity
        .as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|t| t.match_fields.iter().flatten());
    let own = fields.find(|f| f.key == FIELD && f.operator == "In")?;
    own.values.as_ref()?.first().cloned()
}
