//! Pod garbage collection: pods of deleted nodes, deleted pods that were never bound, and
//! terminated pods above the threshold.

use std::time::Duration;

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, Verb, Write, pods, time,
};

/// Time for which a node must be missing before its pods count as orphaned.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Queue key for the count of terminated pods.
const CENSUS: &str = "census";

/// Returns the actions for one pod; `lost` if its node has been missing for long enough.
pub fn reconcile_pod(pod: &Pod, lost: bool, now: Timestamp) -> Vec<Action> {
    let bound = !pods::node_name(pod).is_empty();
    // No kubelet is left that could confirm the end, so the grace period would never be cut short
    // by it.
    if bound && lost {
        let mut actions = Vec::new();
        // Phase Failed first: a Job controller must see the end before the object disappears.
        if !pods::is_terminal(pod) {
            actions.push(fail_pod(pod, now));
        }
        actions.push(force_delete(pod));
        return actions;
    }
    if !bound && pod.is_deleting() {
        return vec![force_delete(pod)];
    }
    Vec::new()
}

fn fail_pod(pod: &Pod, now: Timestamp) -> Action {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastTransitionTime": time::api_time(now),
    });
    let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "phase": "Failed", "conditions": [condition] } });
    Action::strategic_status(Target::of(pod), patch).ignore_absent()
}

fn force_delete(pod: &Pod) -> Action {
    // Grace period 0 deletes the object at once; with any other one the API server would wait for
    // the kubelet of a bound pod.
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": pod.uid() } });
    let mut write = Write::new(Verb::Delete, Target::of(pod), options);
    write.tolerate.absent = true;
    write.tolerate.conflict = true;
    write.into()
}

struct PodGc {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    threshold: usize,
}

/// Sets up pod garbage collection; keeps `threshold` terminated pods (0: all of them).
pub fn add_pod_gc(setup: &mut Setup, threshold: usize) {
    let queue = Queue::new();
    let (waiting, gone) = (queue.clone(), queue.clone());
    let nodes = setup.informers.for_kind::<Node>().cache();
    let known = nodes.clone();
    let kind = setup
        .informers
        .for_kind::<Pod>()
        .index(pods::BY_NODE, pods::by_node)
        .on_event(move |event| {
            let Event::Applied { old, new } = event else {
                return;
            };
            let node = pods::node_name(new);
            if node.is_empty() && new.is_deleting() {
                waiting.add(new.key());
            // The pod's watch may be ahead of the node's, so a missing node is checked again after
            // the quarantine.
            } else if !node.is_empty() && old.is_none() && known.get(node).is_none() {
                waiting.add_after(new.key(), QUARANTINE);
            }
            if threshold > 0
                && pods::is_terminal(new)
                && !old.as_ref().is_some_and(|o| pods::is_terminal(o))
            {
                waiting.add(CENSUS.to_owned());
            }
        });
    let pods = kind.cache();
    let on_node = pods.clone();
    let _ = setup.informers.for_kind::<Node>().on_event(move |event| {
        if let Event::Deleted(node) = event {
            on_node
                .by_index(pods::BY_NODE, node.name())
                .iter()
                .for_each(|p| gone.add_after(p.key(), QUARANTINE));
        }
    });
    setup.add_reconciler(
        "pod-garbage-collector",
        1,
        queue,
        PodGc {
            pods,
            nodes,
            threshold,
        },
    );
}

impl PodGc {
    /// Returns deletions of the oldest terminated pods above the threshold.
    fn delete_surplus(&self) -> Vec<Action> {
        let mut ended: Vec<_> = self
            .pods
            .list()
            .into_iter()
            // Pods in deletion count neither as kept nor as surplus: something else, for instance a
            // finalizer, still needs them.
            .filter(|p| pods::is_terminal(p) && !p.is_deleting())
            .collect();
        let count = ended.len().saturating_sub(self.threshold);
        ended.sort_by_key(|p| p.created_at());
        ended
            .into_iter()
            .take(count)
            .map(|p| force_delete(&p))
            .collect()
    }
}

impl Decide for PodGc {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        // Keys of pods contain a slash, so no pod has this key.
        if key == CENSUS {
            return self.delete_surplus();
        }
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        // Looked up only now, after the quarantine: a node that registered again keeps its pods.
        let lost = self.nodes.get(pods::node_name(&pod)).is_none();
        reconcile_pod(&pod, lost, now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;

    #[test]
    fn orphans_go() {
        for (node, deleting, lost, expect) in [
            (None, false, true, vec![]),
            (None, true, true, vec!["delete Pod p"]),
            (Some("a"), false, true, vec!["status Pod p", "delete Pod p"]),
            (Some("a"), true, false, vec![]),
        ] {
            let pod: Pod = serde_json::from_value(
                json!({"metadata": {"name": "p", "namespace": "n", "uid": "p",
                "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
                "spec": {"containers": [], "nodeName": node}, "status": {"phase": "Running"}}),
            )
            .unwrap();
            assert_eq!(
                describe_actions(&reconcile_pod(&pod, lost, Timestamp::UNIX_EPOCH)),
                expect
            );
        }
    }

    #[test]
    fn oldest_terminated_pods_above_the_threshold_are_deleted() {
        let pod = |name: &str, phase: &str, minute: u8| -> Pod {
            serde_json::from_value(
                json!({"metadata": {"name": name, "namespace": "n", "uid": name,
                "creationTimestamp": format!("2026-01-01T00:0{minute}:00Z")},
                "status": {"phase": phase}}),
            )
            .unwrap()
        };
        let pods = vec![
            pod("young", "Failed", 3),
            pod("old", "Succeeded", 1),
            pod("running", "Running", 0),
            pod("middle", "Failed", 2),
        ];
        let gc = PodGc {
            pods: Cache::with_objects(pods),
            nodes: Cache::with_objects(Vec::new()),
            threshold: 1,
        };
        let got = describe_actions(&gc.reconcile(CENSUS, Timestamp::UNIX_EPOCH));
        assert_eq!(got, ["delete Pod old", "delete Pod middle"]);
    }

    #[test]
    fn orphaned_pod_is_failed_and_deleted_without_grace() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [], "nodeName": "lost"}, "status": {"phase": "Running"}}))
        .unwrap();
        let got = reconcile_pod(&pod, true, Timestamp::UNIX_EPOCH);
        let body = |i: usize| got[i].as_write().unwrap().body.clone();
        assert_eq!(
            body(0)["status"]["conditions"][0]["reason"],
            "DeletionByPodGC"
        );
        assert_eq!(body(1)["gracePeriodSeconds"], 0);
        assert_eq!(body(1)["preconditions"]["uid"], "u");
    }
}
