//! TaintToleration: rejects nodes with taints that the pod does not tolerate; PreferNoSchedule
//! lowers the score.

use std::sync::Arc;

use api_semantics::tolerations::{any_tolerates, tolerates};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin,
    PodInfo, Rejection, Score, Snapshot,
};
use serde_json::Value;

use crate::score::default_normalize_scores;

pub(crate) struct TaintToleration;

fn pod_tolerations(pod: &PodInfo) -> &[Toleration] {
    pod.spec()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default()
}

fn find_untolerated_taint<'a>(pod: &PodInfo, taints: &'a [Taint]) -> Option<&'a Taint> {
    // NoExecute also keeps new pods away: the taint manager would evict them at once.
    // PreferNoSchedule only lowers the score.
    let forbids = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    taints
        .iter()
        .filter(forbids)
        .find(|taint| !any_tolerates(pod_tolerations(pod), taint))
}

impl Plugin for TaintToleration {
    const NAME: &'static str = "TaintToleration";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.filter(&self);
        points.score(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[
            EventKind::NodeAdded,
            EventKind::NodeTaints,
            EventKind::PodUpdated,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        let tolerated = |node: &NodeInfo| find_untolerated_taint(pod, node.taints()).is_none();
        match event {
            ClusterEvent::NodeAdded(node) => tolerated(node),
            // Only a change from not tolerated to tolerated helps. Taints come and go with every
            // pressure condition of a node.
            ClusterEvent::NodeUpdated { old, new } => tolerated(new) && !tolerated(old),
            ClusterEvent::PodUpdated { .. } => true,
            _ => false,
        }
    }
}

impl Filter for TaintToleration {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match find_untolerated_taint(pod, node.taints()) {
            None => Ok(()),
            Some(_) => Err(Rejection::unresolvable(
                Self::NAME,
                "node(s) had untolerated taint(s)",
            )),
        }
    }
}

impl Score for TaintToleration {
    /// Returns the number of PreferNoSchedule taints that the pod does not tolerate; normalization
    /// reverses it.
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let soft = |toleration: &&Toleration| {
            toleration
                .effect
                .as_deref()
                // A toleration of another effect does not count for a soft taint, whereas one
                // without effect covers all.
                .is_none_or(|effect| matches!(effect, "" | "PreferNoSchedule"))
        };
        let tolerated = |taint: &Taint| {
            pod_tolerations(pod)
                .iter()
                .filter(soft)
                .any(|known| tolerates(known, taint))
        };
        let taints = node
            .taints()
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule");
        i64::try_from(taints.filter(|taint| !tolerated(taint)).count()).unwrap_or(i64::MAX)
    }

    fn normalize_scores(
        &self,
        _: &CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) {
        default_normalize_scores(scores, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build_node, build_pod};
    use serde_json::json;

    #[test]
    fn untolerated_taint_rejects_unless_it_is_soft() {
        let tainted = |effect: &str| {
            build_node(
                "n",
                json!({}),
                json!({"taints": [{"key": "k", "value": "v", "effect": effect}]}),
                json!({}),
            )
        };
        let tolerating = json!({"tolerations": [{"key": "k", "value": "v"}]});
        let cases = [
            ("NoSchedule", json!({}), false),
            ("NoExecute", json!({}), false),
            ("PreferNoSchedule", json!({}), true),
            ("NoSchedule", tolerating.clone(), true),
        ];
        for (effect, spec, want) in cases {
            let got =
                TaintToleration.filter(&CycleState::default(), &build_pod(spec), &tainted(effect));
            assert_eq!(got.is_ok(), want, "{effect}");
        }
        let score = |spec| {
            let (state, snapshot) = (CycleState::default(), Snapshot::default());
            TaintToleration.score(
                &state,
                &build_pod(spec),
                &tainted("PreferNoSchedule"),
                &snapshot,
            )
        };
        assert_eq!((score(json!({})), score(tolerating)), (1, 0));
    }

    fn node_with_taints(taints: Value) -> NodeInfo {
        build_node("n", json!({}), json!({"taints": taints}), json!({}))
    }

    #[test]
    fn toleration_matches_by_key_operator_value_and_effect() {
        let cases = [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
                true,
            ),
            (
                json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
                false,
            ),
            (json!({"key": "k", "operator": "Equal", "value": "v"}), true),
            (
                json!({"key": "k", "operator": "Equal", "value": "w"}),
                false,
            ),
            (json!({"key": "other", "operator": "Exists"}), false),
        ];
        let node = node_with_taints(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]));
        for (toleration, want) in cases {
            let pod = build_pod(json!({"tolerations": [toleration]}));
            let got = TaintToleration.filter(&CycleState::default(), &pod, &node);
            assert_eq!(got.is_ok(), want, "{toleration}");
        }
    }

    #[test]
    fn every_hard_taint_needs_a_toleration() {
        let node = node_with_taints(json!([
            {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]));
        let exists = |key: &str| json!({"key": key, "operator": "Exists"});
        let fits = |tolerations: Value| {
            let pod = build_pod(json!({"tolerations": tolerations}));
            TaintToleration
                .filter(&CycleState::default(), &pod, &node)
                .is_ok()
        };
        assert!(!fits(json!([exists("a")])));
        assert!(fits(json!([exists("a"), exists("b")])));
    }

    #[test]
    fn node_with_the_fewest_untolerated_soft_taints_scores_best() {
        let soft = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
        let (state, snapshot) = (CycleState::default(), Snapshot::default());
        // A toleration of another effect does not count for a soft taint.
        let pod = build_pod(json!({"tolerations": [
            {"key": "a", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "b", "operator": "Exists", "effect": "PreferNoSchedule"}]}));
        let nodes = [
            json!([]),
            json!([soft("b")]),
            json!([soft("a")]),
            json!([soft("a"), soft("c")]),
        ];
        let mut scores: Vec<i64> = nodes
            .into_iter()
            .map(|taints| TaintToleration.score(&state, &pod, &node_with_taints(taints), &snapshot))
            .collect();
        assert_eq!(scores, [0, 0, 1, 2]);
        TaintToleration.normalize_scores(&state, &pod, &[], &mut scores);
        assert_eq!(scores, [100, 100, 50, 0]);
    }

    #[test]
    fn node_update_helps_only_if_the_last_untolerated_taint_is_removed() {
        let pod = build_pod(json!({}));
        let node = |count: usize| {
            let taints = vec![json!({"key": "k", "effect": "NoSchedule"}); count];
            Arc::new(node_with_taints(json!(taints)))
        };
        for (old, new, want) in [(1, 0, true), (2, 1, false), (0, 0, false), (0, 1, false)] {
            let event = ClusterEvent::NodeUpdated {
                old: node(old),
                new: node(new),
            };
            assert_eq!(
                TaintToleration.queueing_hint(&pod, &event),
                want,
                "{old} -> {new}"
            );
        }
    }
}
