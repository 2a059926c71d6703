//! NodeResourcesBalancedAllocation: prefers nodes on which the pod makes resource usage more
//! balanced.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, CycleState, ExtensionPoints, MAX_NODE_SCORE, NodeInfo, Plugin, PodInfo, PreScore,
    Score, Snapshot,
};
use serde_json::Value;

pub(crate) struct BalancedAllocation {
    resources: Vec<String>,
}

impl Plugin for BalancedAllocation {
    const NAME: &'static str = "NodeResourcesBalancedAllocation";

    fn new(args: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        let given = args
            .get("resources")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let named = given
            .filter_map(|entry| entry.get("name")?.as_str())
            .map(str::to_owned);
        let mut resources: Vec<String> = named.collect();
        if resources.is_empty() {
            resources = vec!["cpu".to_owned(), "memory".to_owned()];
        }
        Ok(Self { resources })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_score(&self);
        points.score(&self);
    }
}

/// Returns the standard deviation of shares.
fn standard_deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        // The common case of CPU and memory: the same value as the general formula, without its
        // rounding.
        [a, b] => (a - b).abs() / 2.0,
        many => {
            let count = many.len() as f64;
            let mean = many.iter().sum::<f64>() / count;
            (many.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count).sqrt()
        }
    }
}

impl BalancedAllocation {
    /// Returns the balance of a node's resources with `more` of each in use: 50 to 100, 100 for
    /// balanced use.
    fn balance_score(&self, pod: &PodInfo, node: &NodeInfo, more: impl Fn(&str) -> i64) -> i64 {
        let share = |name: &String| {
            let all = node.allocatable.get(name);
            let counts = matches!(name.as_str(), "cpu" | "memory") || pod.requests.get(name) > 0;
            // Real requests, not the defaults for scoring: a balance over guessed amounts would
            // mean little.
            let used = node.requested.get(name).saturating_add(more(name));
            // A resource that the pod does not request must not influence the choice. CPU and
            // memory always count.
            (all > 0 && counts).then(|| (used as f64 / all as f64).min(1.0))
        };
        let shares: Vec<f64> = self.resources.iter().filter_map(share).collect();
        ((1.0 - standard_deviation(&shares)) * MAX_NODE_SCORE as f64) as i64
    }
}

impl PreScore for BalancedAllocation {
    /// Skips scoring for a pod without requests, which changes no balance.
    fn pre_score(
        &self,
        _: &mut CycleState,
        pod: &PodInfo,
        _: &[Arc<NodeInfo>],
        _: &Snapshot,
    ) -> bool {
        self.resources.iter().any(|name| pod.requests.get(name) > 0)
    }
}

impl Score for BalancedAllocation {
    /// Returns 75 if the pod does not change the balance, up to 100 if it improves it, down to 50
    /// if it worsens it.
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let before = self.balance_score(pod, node, |_| 0);
        let after = self.balance_score(pod, node, |name| pod.requests.get(name));
        // By the change, not by the state afterwards: a balanced node would otherwise win even if
        // the pod unbalances it.
        let half = MAX_NODE_SCORE / 2;
        half + (half + after - before) / 2
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{build_node, empty_cluster, requesting_pod};
    use serde_json::json;

    #[test]
    fn score_is_the_change_of_balance() {
        let plugin = BalancedAllocation::new(&Value::Null, &empty_cluster()).unwrap();
        let cases = [
            // Balanced stays balanced; all of one resource; an unbalanced node is balanced.
            ((0, 0), (2000, 500), 75),
            ((0, 0), (4000, 0), 50),
            ((2000, 0), (0, 500), 87),
        ];
        for (used, wanted, want) in cases {
            let mut node = build_node(
                "n",
                json!({}),
                json!({}),
                json!({"cpu": "4", "memory": "1000"}),
            );
            node.add_pod(Arc::new(requesting_pod("before", used.0, used.1)));
            let pod = requesting_pod("p", wanted.0, wanted.1);
            let got = plugin.score(&CycleState::default(), &pod, &node, &Snapshot::default());
            assert_eq!(got, want, "{used:?} {wanted:?}");
        }
    }

    #[test]
    fn pod_without_requests_is_not_scored() {
        let plugin = BalancedAllocation::new(&Value::Null, &empty_cluster()).unwrap();
        let scores = |pod: &PodInfo| {
            plugin.pre_score(&mut CycleState::default(), pod, &[], &Snapshot::default())
        };
        assert!(scores(&requesting_pod("p", 1, 0)));
        assert!(!scores(&requesting_pod("p", 0, 0)));
    }
}
