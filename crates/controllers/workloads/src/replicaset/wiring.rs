//! Enqueues ReplicaSets and ReplicationControllers, and reads their pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, pods, wake};

use super::{failed, reconcile};
use crate::set::PodSet;

/// The controller of one kind of set.
pub struct ReplicaSetController<S> {
    sets: Cache<S>,
    pods: Cache<Pod>,
}

/// Sets up the ReplicaSet controller.
pub fn replica_sets(setup: &mut Setup, workers: usize) {
    register::<ReplicaSet>(setup, "replicaset-controller", workers);
}

/// Sets up the ReplicationController controller.
pub fn replication_controllers(setup: &mut Setup, workers: usize) {
    register::<ReplicationController>(setup, "replication-controller", workers);
}

fn register<S: PodSet>(setup: &mut Setup, name: &'static str, workers: usize) {
    let queue = Queue::new();
    let sets = setup
        .informers
        .of::<S>()
        .index_namespace()
        .index_claims()
        .on(wake::itself(&queue))
        .cache();
    let pods = wake::on_owned(setup.informers.of::<Pod>(), &queue, &sets, PodSet::selector);
    setup.decide(name, workers, queue, ReplicaSetController { sets, pods });
}

impl<S: PodSet> ReplicaSetController<S> {
    /// Returns active pods of all sets with the same owner, for spreading deletions over nodes.
    fn siblings(&self, set: &S) -> Vec<Arc<Pod>> {
        let sets = match set.controller() {
            Some(owner) => self.sets.owned(&owner.uid),
            None => Vec::new(),
        };
        let uids: Vec<_> = if sets.is_empty() {
            vec![set.uid()]
        } else {
            sets.iter().map(|s| s.uid()).collect()
        };
        uids.into_iter()
            .flat_map(|uid| self.pods.owned(uid))
            .filter(|p| pods::is_active(p))
            .collect()
    }
}

impl<S: PodSet> Decide for ReplicaSetController<S> {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        let candidates = self.pods.candidates(set.namespace(), set.uid());
        reconcile(set.as_ref(), &candidates, &self.siblings(&set), now)
    }

    fn failed(&self, key: &str, error: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        failed(
            set.as_ref(),
            &self.pods.candidates(set.namespace(), set.uid()),
            error,
            now,
        )
    }
}
