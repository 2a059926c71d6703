//! Enqueues DaemonSets: on their own changes, on changes of their pods, and on relevant changes of
//! nodes.

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::reconcile;
use crate::history;

struct DaemonSetController {
    sets: Cache<DaemonSet>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    revisions: Cache<ControllerRevision>,
}

/// Sets up the DaemonSet controller.
pub fn daemon_sets(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let sets = setup
        .informers
        .of::<DaemonSet>()
        .index_namespace()
        .on(wake::itself(&queue))
        .cache();
    let pods = wake::on_owned(setup.informers.of::<Pod>(), &queue, &sets, selector);
    let revisions = wake::on_owned(
        setup.informers.of::<ControllerRevision>(),
        &queue,
        &sets,
        selector,
    );
    let (waiting, known) = (queue.clone(), sets.clone());
    let nodes = setup.informers.of::<Node>().on(move |event| {
        let same = match event {
            Event::Applied {
                old: Some(old),
                new,
            } => face(old) == face(new),
            _ => false,
        };
        if !same {
            known.list().iter().for_each(|set| waiting.add(set.key()));
        }
    });
    let nodes = nodes.cache();
    setup.decide(
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
fn face(node: &Node) -> impl PartialEq + use<> {
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

fn selector(set: &DaemonSet) -> LabelSelector {
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
        let pods = self.pods.candidates(set.namespace(), set.uid());
        let revisions = self.revisions.candidates(set.namespace(), set.uid());
        let owned = history::claim(set.as_ref(), &selector(&set), &revisions);
        let mut nodes = self.nodes.list();
        nodes.sort_by(|a, b| a.name().cmp(b.name()));
        let mut actions = owned.actions;
        actions.extend(reconcile(&set, &pods, &nodes, &owned.owned, now));
        actions
    }
}
