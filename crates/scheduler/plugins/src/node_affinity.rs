//! NodeAffinity: nodeSelector, required and preferred node affinity, and the profile's added
//! affinity.

use std::collections::HashSet;
use std::sync::Arc;

use api_semantics::selectors::{node_matches, pod_allows_node, term_matches};
use k8s_openapi::api::core::v1::{
    NodeAffinity as Affinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm,
};
use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin,
    PodInfo, PreFilter, PreFilterResult, PreScore, Rejection, Score, Snapshot,
};
use serde_json::Value;

use crate::score::default_normalize_scores;

const NO_MATCH: &str = "node(s) didn't match Pod's node affinity/selector";
const NO_ADDED_MATCH: &str = "node(s) didn't match scheduler-enforced node affinity";

pub(crate) struct NodeAffinity {
    added: Option<Affinity>,
}

fn pod_node_affinity(pod: &PodInfo) -> Option<&Affinity> {
    pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()
}

fn required_selector(affinity: &Affinity) -> Option<&NodeSelector> {
    affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()
}

fn preferred_terms(affinity: Option<&Affinity>) -> &[PreferredSchedulingTerm] {
    let terms = affinity.and_then(|affinity| {
        affinity
            .preferred_during_scheduling_ignored_during_execution
            .as_deref()
    });
    terms.unwrap_or_default()
}

/// Returns whether the pod's own selector and required affinity match a node.
pub(crate) fn matches_node_affinity(pod: &PodInfo, node: &NodeInfo) -> bool {
    let Some(object) = &node.node else {
        return false;
    };
    pod.spec().is_none_or(|spec| pod_allows_node(spec, object))
}

/// Returns the node names that a term requires with `metadata.name`; None if it does not.
fn pinned_node_names(term: &NodeSelectorTerm) -> Option<HashSet<String>> {
    let fields = term.match_fields.iter().flatten();
    let names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names
        .map(|field| {
            field
                .values
                .iter()
                .flatten()
                .cloned()
                .collect::<HashSet<String>>()
        })
        // Requirements of one term must all hold, so their names are intersected; terms are
        // alternatives, and the caller unites them.
        .reduce(|all, more| all.intersection(&more).cloned().collect())
}

impl Plugin for NodeAffinity {
    const NAME: &'static str = "NodeAffinity";

    fn new(args: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        let added = args.get("addedAffinity").filter(|value| !value.is_null());
        let added = added.cloned().map(serde_json::from_value).transpose();
        Ok(Self {
            added: added.map_err(|error| format!("addedAffinity: {error}"))?,
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
        points.pre_score(&self);
        points.score(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[
            EventKind::NodeAdded,
            EventKind::NodeLabels,
            EventKind::PodUpdated,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        let matches =
            |node: &NodeInfo| self.matches_added_affinity(node) && matches_node_affinity(pod, node);
        match event {
            ClusterEvent::NodeAdded(node) => matches(node),
            // A node that matched before did not reject the pod by affinity, so its change does not
            // help.
            ClusterEvent::NodeUpdated { old, new } => matches(new) && !matches(old),
            ClusterEvent::PodUpdated { .. } => true,
            _ => false,
        }
    }
}

impl NodeAffinity {
    /// Returns whether the profile's added affinity matches a node.
    fn matches_added_affinity(&self, node: &NodeInfo) -> bool {
        let added = self.added.as_ref().and_then(required_selector);
        added
            .zip(node.node.as_ref())
            .is_none_or(|(selector, object)| node_matches(selector, object))
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> PreFilterResult {
        let selects = pod
            .spec()
            .and_then(|spec| spec.node_selector.as_ref())
            .is_some_and(|labels| !labels.is_empty());
        let terms = pod_node_affinity(pod).and_then(required_selector);
        if !selects && terms.is_none() && self.added.is_none() {
            return PreFilterResult::Skip;
        }
        // A nodeSelector or added affinity restricts by label, which only the filter can decide.
        let Some(terms) = terms else {
            return PreFilterResult::All;
        };
        let mut nodes = HashSet::new();
        for term in &terms.node_selector_terms {
            // A term without node names leaves all nodes possible.
            let Some(names) = pinned_node_names(term) else {
                return PreFilterResult::All;
            };
            nodes.extend(names);
        }
        // Terms that name nodes, but no node in common: no node can ever match.
        if nodes.is_empty() {
            let reason = "pod affinity terms conflict";
            return PreFilterResult::Reject(Rejection::unresolvable(Self::NAME, reason));
        }
        PreFilterResult::Nodes(nodes)
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        // First, and with a reason of its own: users cannot see the profile's affinity in their
        // pod.
        if !self.matches_added_affinity(node) {
            return Err(Rejection::unresolvable(Self::NAME, NO_ADDED_MATCH));
        }
        if matches_node_affinity(pod, node) {
            Ok(())
        } else {
            Err(Rejection::unresolvable(Self::NAME, NO_MATCH))
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &[Arc<NodeInfo>],
        _: &Snapshot,
    ) -> bool {
        !preferred_terms(pod_node_affinity(pod)).is_empty()
            || !preferred_terms(self.added.as_ref()).is_empty()
    }
}

impl Score for NodeAffinity {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        // The node was deleted since the filter ran; its pods keep the entry.
        let Some(object) = &node.node else { return 0 };
        let terms = preferred_terms(pod_node_affinity(pod))
            .iter()
            .chain(preferred_terms(self.added.as_ref()));
        let matching = terms.filter(|term| term_matches(&term.preference, object));
        matching.map(|term| i64::from(term.weight)).sum()
    }

    fn normalize_scores(
        &self,
        _: &CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) {
        default_normalize_scores(scores, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_pod, labelled_node};
    use serde_json::json;

    fn required_of(terms: Value) -> PodInfo {
        build_pod(json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
    }

    #[test]
    fn node_selector_and_required_terms_match_by_operator() {
        let node = labelled_node("n", json!({"zone": "a", "cores": "5"}));
        let expr = |key: &str, operator: &str, values: Value| json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
        let cases = [
            (build_pod(json!({"nodeSelector": {"zone": "a"}})), true),
            (build_pod(json!({"nodeSelector": {"zone": "b"}})), false),
            (required_of(expr("zone", "In", json!(["a", "b"]))), true),
            (required_of(expr("zone", "NotIn", json!(["a"]))), false),
            (required_of(expr("cores", "Gt", json!(["4"]))), true),
            (required_of(json!([{}])), false),
            (
                required_of(
                    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]),
                ),
                true,
            ),
        ];
        for (pod, want) in cases {
            assert_eq!(matches_node_affinity(&pod, &node), want, "{:?}", pod.spec());
        }
    }

    #[test]
    fn terms_that_name_nodes_restrict_the_candidates() {
        let plugin = NodeAffinity { added: None };
        let name = |names: Value| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        let run = |pod: PodInfo| {
            plugin.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default())
        };
        assert!(matches!(run(build_pod(json!({}))), PreFilterResult::Skip));
        let PreFilterResult::Nodes(nodes) =
            run(required_of(json!([name(json!(["a"])), name(json!(["b"]))])))
        else {
            panic!("no nodes")
        };
        assert_eq!(nodes.len(), 2);
        let open =
            json!([name(json!(["a"])), {"matchExpressions": [{"key": "k", "operator": "Exists"}]}]);
        assert!(matches!(run(required_of(open)), PreFilterResult::All));
    }

    #[test]
    fn terms_are_alternatives_whose_expressions_must_all_match() {
        let node = labelled_node("n", json!({"zone": "a", "cores": "5"}));
        let exists = json!({"key": "zone", "operator": "Exists"});
        let absent = json!({"key": "gpu", "operator": "DoesNotExist"});
        let few = json!({"key": "cores", "operator": "Lt", "values": ["5"]});
        let cases = [
            (json!([{"matchExpressions": [exists, absent]}]), true),
            (json!([{"matchExpressions": [exists, few]}]), false),
            (
                json!([{"matchExpressions": [few]}, {"matchExpressions": [exists]}]),
                true,
            ),
            (json!([{"matchExpressions": [few]}, {}]), false),
        ];
        for (terms, want) in cases {
            let pod = required_of(terms.clone());
            assert_eq!(matches_node_affinity(&pod, &node), want, "{terms}");
        }
    }

    #[test]
    fn terms_with_contradicting_names_reject_the_pod_before_any_node() {
        let plugin = NodeAffinity { added: None };
        let named =
            |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let pod = required_of(json!([{"matchFields": [named("a"), named("b")]}]));
        let result = plugin.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default());
        let PreFilterResult::Reject(rejection) = result else {
            panic!("accepted")
        };
        assert_eq!(
            rejection.code,
            scheduler_framework::Code::UnschedulableAndUnresolvable
        );
    }

    #[test]
    fn added_affinity_of_the_profile_has_its_own_reason() {
        let args = json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}]}}});
        let plugin = NodeAffinity::new(&args, &crate::testing::empty_cluster());
        let Ok(plugin) = plugin else {
            panic!("the arguments are rejected")
        };
        let reason = |labels: Value, spec: Value| {
            let (node, state) = (labelled_node("n", labels), CycleState::default());
            let rejection = plugin.filter(&state, &build_pod(spec), &node).err();
            rejection.map(|rejection| rejection.reasons.join(""))
        };
        assert_eq!(reason(json!({"pool": "x"}), json!({})), None);
        let other = reason(json!({"pool": "y"}), json!({}));
        assert_eq!(other.as_deref(), Some(NO_ADDED_MATCH));
        let own = reason(json!({"pool": "x"}), json!({"nodeSelector": {"a": "b"}}));
        assert_eq!(own.as_deref(), Some(NO_MATCH));
        assert!(
            NodeAffinity::new(
                &json!({"addedAffinity": 5}),
                &crate::testing::empty_cluster()
            )
            .is_err()
        );
    }

    #[test]
    fn preferred_terms_add_their_weights_and_the_best_node_gets_100() {
        let term = |weight: i32, value: &str| {
            json!({"weight": weight, "preference":
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}})
        };
        let pod = build_pod(json!({"affinity": {"nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [term(30, "a"), term(10, "a"), term(20, "b")]}}}));
        let plugin = NodeAffinity { added: None };
        let (mut state, snapshot) = (CycleState::default(), Snapshot::default());
        assert!(plugin.pre_score(&mut state, &pod, &[], &snapshot));
        assert!(!plugin.pre_score(&mut state, &build_pod(json!({})), &[], &snapshot));
        let mut scores: Vec<i64> = ["a", "b", "c"]
            .iter()
            .map(|zone| {
                let node = labelled_node("n", json!({"zone": zone}));
                plugin.score(&state, &pod, &node, &snapshot)
            })
            .collect();
        assert_eq!(scores, [40, 20, 0]);
        plugin.normalize_scores(&state, &pod, &[], &mut scores);
        assert_eq!(scores, [100, 50, 0]);
    }

    #[test]
    fn node_update_helps_only_if_the_node_did_not_match_before() {
        let plugin = NodeAffinity { added: None };
        let pod = build_pod(json!({"nodeSelector": {"zone": "a"}}));
        let node = |zone: &str| Arc::new(labelled_node("n", json!({"zone": zone})));
        for (old, new, want) in [("b", "a", true), ("a", "a", false), ("a", "b", false)] {
            let event = ClusterEvent::NodeUpdated {
                old: node(old),
                new: node(new),
            };
            assert_eq!(plugin.queueing_hint(&pod, &event), want, "{old} -> {new}");
        }
    }
}
