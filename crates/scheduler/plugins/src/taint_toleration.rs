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
    fn taints() {
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
}
