//! A spread constraint: the pods that it counts, and the nodes where it counts them.

use api_semantics::selectors::{Labels, labels_match};
use api_semantics::tolerations::any_tolerates;
use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use scheduler_framework::{Cluster, NodeInfo, PodInfo};

use crate::node_affinity::matches_node_affinity;

/// Labels that differ between pods of one controller.
const OWN_LABELS: [&str; 3] = [
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];

/// The effect of an unmet constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Forbid,
    Score,
}

#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub(super) key: String,
    pub(super) max_skew: i64,
    pub(super) min_domains: i64,
    pub(super) action: Action,
    pub(super) selector: Option<LabelSelector>,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Constraint {
    pub(super) fn new(given: &TopologySpreadConstraint, labels: Option<&Labels>) -> Self {
        let honors = |policy: &Option<String>, default| {
            policy
                .as_deref()
                .map_or(default, |policy| policy == "Honor")
        };
        Self {
            key: given.topology_key.clone(),
            max_skew: i64::from(given.max_skew),
            min_domains: i64::from(given.min_domains.unwrap_or(1)),
            action: if given.when_unsatisfiable == "ScheduleAnyway" {
                Action::Score
            } else {
                Action::Forbid
            },
            selector: with_label_keys(given, labels),
            // Defaults of the API: nodes that the pod cannot use by affinity do not count, tainted
            // nodes do.
            honor_affinity: honors(&given.node_affinity_policy, true),
            honor_taints: honors(&given.node_taints_policy, false),
        }
    }

    pub(super) fn default_for(key: &str, max_skew: i64) -> Self {
        Self {
            key: key.to_owned(),
            max_skew,
            min_domains: 1,
            action: Action::Score,
            selector: None,
            honor_affinity: true,
            honor_taints: false,
        }
    }

    /// Returns whether the selector matches labels.
    pub(super) fn selects_labels(&self, labels: Option<&Labels>) -> bool {
        labels_match(self.selector.as_ref(), labels)
    }

    /// Returns whether a pod of the right namespace counts.
    pub(super) fn counts_pod(&self, other: &Pod) -> bool {
        // A pod that is being deleted does not count: its replacement would otherwise be kept out
        // of the domain that it leaves.
        other.metadata.deletion_timestamp.is_none()
            && self.selects_labels(other.metadata.labels.as_ref())
    }

    /// Returns whether a node counts for a pod (node affinity and taints policies).
    pub(super) fn includes_node(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        if self.honor_affinity && !matches_node_affinity(pod, node) {
            return false;
        }
        let tolerations = pod
            .spec()
            .and_then(|spec| spec.tolerations.as_deref())
            .unwrap_or_default();
        // Soft taints do not keep the pod away, so their nodes take part.
        let mut hard = node
            .taints()
            .iter()
            .filter(|taint| taint.effect != "PreferNoSchedule");
        !self.honor_taints || hard.all(|taint| any_tolerates(tolerations, taint))
    }

    /// Returns the number of matching pods on a node.
    pub(super) fn count_pods(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let counts = |other: &&std::sync::Arc<PodInfo>| {
            other.namespace() == pod.namespace() && self.counts_pod(&other.pod)
        };
        i64::try_from(node.pods.iter().filter(counts).count()).unwrap_or(i64::MAX)
    }
}

fn with_label_keys(
    given: &TopologySpreadConstraint,
    labels: Option<&Labels>,
) -> Option<LabelSelector> {
    let mut selector = given.label_selector.clone()?;
    // The revision hash as a key spreads each revision of a Deployment on its own; otherwise old
    // pods would distort a rollout.
    for key in given.match_label_keys.iter().flatten() {
        if let Some(value) = labels.and_then(|labels| labels.get(key)) {
            let values = Some(vec![value.clone()]);
            let requirement = LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values,
            };
            selector
                .match_expressions
                .get_or_insert_default()
                .push(requirement);
        }
    }
    Some(selector)
}

/// Returns the selector of the default constraints: pods of the same ReplicaSet or StatefulSet, or
/// of the same Services.
pub(super) fn default_selector(pod: &PodInfo, cluster: &dyn Cluster) -> Option<LabelSelector> {
    let labels = pod.labels()?;
    let controller = api_semantics::owners::controller_of(&pod.pod.metadata);
    let replicated = ["ReplicaSet", "StatefulSet", "ReplicationController"];
    let match_labels: Labels =
        if controller.is_some_and(|owner| replicated.contains(&owner.kind.as_str())) {
            // Labels that single out one pod of a controller would make each pod a group of its
            // own.
            let shared = labels
                .iter()
                .filter(|(key, _)| !OWN_LABELS.contains(&key.as_str()));
            shared
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        } else {
            cluster
                .service_selectors(pod.namespace(), labels)
                .into_iter()
                .flatten()
                .collect()
        };
    (!match_labels.is_empty()).then(|| LabelSelector {
        match_labels: Some(match_labels),
        ..LabelSelector::default()
    })
}
