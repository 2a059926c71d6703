//! Taint eviction: deletes pods from nodes with NoExecute taints once their tolerations have
//! expired.

use std::collections::HashMap;
use std::time::Duration;

use api_semantics::tolerations::find_toleration;
use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::json;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, object_reference, pods, time,
};

/// Returns the deletion of the pod if its tolerations have expired.
pub fn reconcile_pod(pod: &Pod, taints: &[Taint], now: Timestamp) -> Vec<Action> {
    if pod.is_deleting() || pods::is_terminal(pod) {
        return Vec::new();
    }
    match eviction_time(pod, taints, now) {
        None => Vec::new(),
        Some(at) if at <= now => evict_pod(pod, now),
        // A tenth of a second late, so that the deadline has passed when the key is reconciled
        // again.
        Some(at) => vec![Action::Requeue(
            time::duration_until(at, now) + Duration::from_millis(100),
        )],
    }
}

/// Returns the time of the eviction: the end of the shortest toleration, or None for never. The
/// first toleration that matches a taint counts, as upstream.
fn eviction_time(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let mut earliest: Option<Timestamp> = None;
    // The other effects concern only the scheduler: running pods stay.
    for taint in taints.iter().filter(|t| t.effect == "NoExecute") {
        // One taint that is not tolerated evicts at once, whatever the other tolerations allow.
        let Some(toleration) = find_toleration(tolerations, taint) else {
            return Some(now);
        };
        // Without tolerationSeconds the taint is tolerated forever, but another one may still
        // evict.
        let Some(seconds) = toleration.toleration_seconds else {
            continue;
        };
        let from = taint.time_added.as_ref().map_or(now, |t| t.0);
        let at = time::seconds_after(from, seconds.max(0));
        earliest = Some(earliest.map_or(at, |e| e.min(at)));
    }
    earliest
}

fn evict_pod(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": time::api_time(now),
    });
    let patch =
        json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
    let text = format!("Marking for deletion Pod {}", pod.key());
    vec![
        // The condition before the deletion: Jobs read it from the terminated pod in their failure
        // policy.
        Action::strategic_status(Target::of(pod), patch).ignore_absent(),
        Action::event(&object_reference(pod), "TaintManagerEviction", text),
        Action::delete(pod),
    ]
}

struct Eviction {
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    /// First-seen times of taints without `timeAdded`, by node.
    seen: Mutex<HashMap<String, Vec<(Taint, Timestamp)>>>,
}

impl Eviction {
    /// Returns the node's taints with their times. Tolerations count from that time, however often
    /// the pod is reconciled.
    fn set_time_added(&self, node: &Node, now: Timestamp) -> Vec<Taint> {
        let mut taints = node
            .spec
            .as_ref()
            .and_then(|s| s.taints.clone())
            .unwrap_or_default();
        let mut seen = self.seen.lock();
        let known = seen.remove(node.name()).unwrap_or_default();
        let mut kept = Vec::new();
        for taint in taints
            .iter_mut()
            .filter(|t| t.effect == "NoExecute" && t.time_added.is_none())
        {
            let since = known
                .iter()
                // Without this memory every reconcile would start tolerationSeconds again, and the
                // pod would never be evicted.
                .find(|(t, _)| t == taint)
                .map_or(now, |(_, since)| *since);
            kept.push((taint.clone(), since));
            taint.time_added = Some(Time(since));
        }
        if !kept.is_empty() {
            seen.insert(node.name().to_owned(), kept);
        }
        taints
    }
}

/// Sets up the taint eviction controller.
pub fn add_taint_eviction(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let waiting = queue.clone();
    let kind = setup
        .informers
        .for_kind::<Pod>()
        .index(pods::BY_NODE, pods::by_node)
        .on_event(move |event| {
            if let Event::Applied { old, new } = event
                && !pods::node_name(new).is_empty()
                // Tolerations can be added to a bound pod, and change the time of its eviction.
                && old.as_ref().is_none_or(|o| {
                    pods::node_name(o) != pods::node_name(new) || o.spec != new.spec
                })
            {
                waiting.add(new.key());
            }
        });
    let pods = kind.cache();
    let (waiting, known) = (queue.clone(), pods.clone());
    let nodes = setup.informers.for_kind::<Node>().on_event(move |event| {
        let Event::Applied { old, new } = event else {
            return;
        };
        let taints = |n: &Node| {
            n.spec
                .as_ref()
                .and_then(|s| s.taints.clone())
                .unwrap_or_default()
        };
        let before = old.as_ref().map(|o| taints(o)).unwrap_or_default();
        if before != taints(new) {
            known
                .by_index(pods::BY_NODE, new.name())
                .iter()
                .for_each(|p| waiting.add(p.key()));
        }
    });
    let nodes = nodes.cache();
    setup.add_reconciler(
        "node-controller",
        workers,
        queue,
        Eviction {
            nodes,
            pods,
            seen: Mutex::default(),
        },
    );
}

impl Decide for Eviction {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        let Some(node) = self.nodes.get(pods::node_name(&pod)) else {
            return Vec::new();
        };
        reconcile_pod(&pod, &self.set_time_added(&node, now), now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::Value;

    #[test]
    fn tolerations_run_out() {
        let now: Timestamp = "2026-01-01T00:05:00Z".parse().unwrap();
        let taint: Taint = serde_json::from_value(
            json!({"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:04:00Z"}),
        )
        .unwrap();
        for (tolerations, expect) in [
            (json!([]), "delete Pod p"),
            (json!([{"key": "k", "operator": "Exists"}]), ""),
            (json!([{"operator": "Exists"}]), ""),
            (
                json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}]),
                "requeue 240s",
            ),
            (
                json!([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}]),
                "delete Pod p",
            ),
            (
                json!([{"key": "k", "operator": "Equal", "value": "x"}]),
                "delete Pod p",
            ),
            (
                json!([
                    {"operator": "Exists"},
                    {"key": "k", "operator": "Exists", "tolerationSeconds": 30}
                ]),
                "",
            ),
        ] as [(Value, &str); 7]
        {
            let pod: Pod = serde_json::from_value(
                json!({"metadata": {"name": "p", "namespace": "n", "uid": "p"},
                "spec": {"containers": [], "tolerations": tolerations}}),
            )
            .unwrap();
            let got = describe_actions(&reconcile_pod(&pod, std::slice::from_ref(&taint), now));
            assert_eq!(got.last().map_or("", String::as_str), expect);
        }
    }

    fn evict_with(tolerations: Value, taints: Value, now: &str) -> Vec<String> {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [], "tolerations": tolerations}}))
        .unwrap();
        let taints: Vec<Taint> = serde_json::from_value(taints).unwrap();
        describe_actions(&reconcile_pod(&pod, &taints, now.parse().unwrap()))
    }

    #[test]
    fn shortest_toleration_of_all_taints_decides() {
        let tolerate = |key: &str, seconds: i64| {
            json!({"key": key, "operator": "Exists",
            "tolerationSeconds": seconds})
        };
        let taint = |key: &str| {
            json!({"key": key, "effect": "NoExecute",
            "timeAdded": "2026-01-01T00:00:00Z"})
        };
        let got = evict_with(
            json!([tolerate("a", 300), tolerate("b", 60)]),
            json!([taint("a"), taint("b")]),
            "2026-01-01T00:00:30Z",
        );
        assert_eq!(got, ["requeue 30s"]);
    }

    #[test]
    fn taints_with_other_effects_evict_nothing() {
        for effect in ["NoSchedule", "PreferNoSchedule"] {
            let taints = json!([{"key": "k", "effect": effect}]);
            assert!(evict_with(json!([]), taints, "2026-01-01T00:00:00Z").is_empty());
        }
    }

    #[test]
    fn evicted_pod_is_marked_as_disrupted_before_it_is_deleted() {
        let taints = json!([{"key": "k", "effect": "NoExecute"}]);
        let got = evict_with(json!([]), taints, "2026-01-01T00:00:00Z");
        assert_eq!(got[0], "status Pod p");
        assert_eq!(got[2], "delete Pod p");
    }

    #[test]
    fn toleration_of_a_taint_without_a_time_starts_when_it_is_first_seen() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"},
            "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}))
        .unwrap();
        let eviction = Eviction {
            nodes: Cache::with_objects(Vec::new()),
            pods: Cache::with_objects(Vec::new()),
            seen: Mutex::default(),
        };
        let first: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let later = time::seconds_after(first, 60);
        let added = |now| {
            eviction.set_time_added(&node, now)[0]
                .time_added
                .clone()
                .unwrap()
                .0
        };
        assert_eq!((added(first), added(later)), (first, first));
    }
}
