//! Enqueues DaemonSets: on their own changes, on changes of their pods, and on relevant changes of
//! nodes.

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::reconcile_daemon_set;
use crate::history;

struct DaemonSetController {
    sets: Cache<DaemonSet>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    revisions: Cache<ControllerRevision>,
}

/// Sets up the DaemonSet controller.
pub fn add_daemon_set_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let sets = setup
        .informers
        .for_kind::<DaemonSet>()
        .index_namespace()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let pods = wake::on_owned(
        setup.informers.for_kind::<Pod>(),
        &queue,
        &sets,
        pod_selector,
    );
    let revisions = wake::on_owned(
        setup.informers.for_kind::<ControllerRevision>(),
        &queue,
        &sets,
        pod_selector,
    );
    let (waiting, known) = (queue.clone(), sets.clone());
    let nodes = setup.informers.for_kind::<Node>().on_event(move |event| {
        let same = match event {
            Event::Applied {
                old: Some(old),
                new,
            } => scheduling_fields(old) == scheduling_fields(new),
            _ => false,
        };
        // Any node may gain or lose a pod of any set. Heartbeats do not change these fields, so
        // they cause no work.
        if !same {
            known.list().iter().for_each(|set| waiting.add(set.key()));
        }
    });
    let nodes = nodes.cache();
    setup.add_reconciler(
        "daemon-set-controller",
        workers,
        queue,
        DaemonSetController {
            sets,
            pods,
            nodes,
            revisions,
        },
    );
}

/// Returns the parts of a node that affect pods.
fn scheduling_fields(node: &Node) -> impl PartialEq + use<> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|s| s.taints.clone())
        .unwrap_or_default();
    let taints: Vec<_> = taints
        .into_iter()
        .map(|t| (t.key, t.value, t.effect))
        .collect();
    (node.meta().labels.clone(), taints)
}

fn pod_selector(set: &DaemonSet) -> LabelSelector {
    set.spec
        .as_ref()
        .map(|s| s.selector.clone())
        .unwrap_or_default()
}

impl Decide for DaemonSetController {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        let pods = self.pods.claim_candidates(set.namespace(), set.uid());
        let revisions = self.revisions.claim_candidates(set.namespace(), set.uid());
        let owned = history::claim_revisions(set.as_ref(), &pod_selector(&set), &revisions);
        let mut nodes = self.nodes.list();
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        let mut actions = owned.actions;
        actions.extend(reconcile_daemon_set(&set, &pods, &nodes, &owned.owned, now));
        actions
    }
}
