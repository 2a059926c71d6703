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
    Action, Cache, Decide, Meta, Queue, Setup, Target, pods, reference, time,
};

/// Returns the deletion of the pod if its tolerations have expired.
pub fn reconcile(pod: &Pod, taints: &[Taint], now: Timestamp) -> Vec<Action> {
    if pod.deleting() || pods::is_terminal(pod) {
        return Vec::new();
    }
    match deadline(pod, taints, now) {
        None => Vec::new(),
        Some(at) if at <= now => evict(pod, now),
        Some(at) => vec![Action::Requeue(
            time::until(at, now) + Duration::from_millis(100),
        )],
    }
}

/// Returns the time of the eviction: the end of the shortest toleration, or None for never. The
/// first toleration that matches a taint counts, as upstream.
fn deadline(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Timestamp> {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    let mut earliest: Option<Timestamp> = None;
    for taint in taints.iter().filter(|t| t.effect == "NoExecute") {
        let Some(toleration) = find_toleration(tolerations, taint) else {
            return Some(now);
        };
        let Some(seconds) = toleration.toleration_seconds else {
            continue;
        };
        let from = taint.time_added.as_ref().map_or(now, |t| t.0);
        let at = time::after(from, seconds.max(0));
        earliest = Some(earliest.map_or(at, |e| e.min(at)));
    }
    earliest
}

fn evict(pod: &Pod, now: Timestamp) -> Vec<Action> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": time::api(now),
    });
    let patch =
        json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
    let text = format!("Marking for deletion Pod {}", pod.key());
    vec![
        Action::strategic_status(Target::of(pod), patch).ignore_absent(),
        Action::event(&reference(pod), "TaintManagerEviction", text),
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
    fn timed(&self, node: &Node, now: Timestamp) -> Vec<Taint> {
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
pub fn taint_eviction(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let waiting = queue.clone();
    let kind = setup
        .informers
        .of::<Pod>()
        .index(pods::BY_NODE, pods::by_node)
        .on(move |event| {
            if let Event::Applied { old, new } = event
                && !pods::node_name(new).is_empty()
                && old.as_ref().is_none_or(|o| {
                    pods::node_name(o) != pods::node_name(new) || o.spec != new.spec
                })
            {
                waiting.add(new.key());
            }
        });
    let pods = kind.cache();
    let (waiting, known) = (queue.clone(), pods.clone());
    let nodes = setup.informers.of::<Node>().on(move |event| {
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
                .by(pods::BY_NODE, new.name())
                .iter()
                .for_each(|p| waiting.add(p.key()));
        }
    });
    let nodes = nodes.cache();
    setup.decide(
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
        reconcile(&pod, &self.timed(&node, now), now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe;
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
            let got = describe(&reconcile(&pod, std::slice::from_ref(&taint), now));
            assert_eq!(got.last().map_or("", String::as_str), expect);
        }
    }
}
