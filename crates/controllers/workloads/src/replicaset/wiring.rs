//! Enqueues ReplicaSets and ReplicationControllers, and reads their pods.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, pods, wake};

use super::{reconcile_set, report_failure};
use crate::set::PodSet;

/// The controller of one kind of set.
pub struct ReplicaSetController<S> {
    sets: Cache<S>,
    pods: Cache<Pod>,
}

/// Sets up the ReplicaSet controller.
pub fn add_replica_set_controller(setup: &mut Setup, workers: usize) {
    add_controller::<ReplicaSet>(setup, "replicaset-controller", workers);
}

/// Sets up the ReplicationController controller.
pub fn add_replication_controller(setup: &mut Setup, workers: usize) {
    add_controller::<ReplicationController>(setup, "replication-controller", workers);
}

fn add_controller<S: PodSet>(setup: &mut Setup, name: &'static str, workers: usize) {
    let queue = Queue::new();
    let sets = setup
        .informers
        .for_kind::<S>()
        .index_namespace()
        .index_claims()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let pods = wake::on_owned(
        setup.informers.for_kind::<Pod>(),
        &queue,
        &sets,
        PodSet::pod_selector,
    );
    setup.add_reconciler(name, workers, queue, ReplicaSetController { sets, pods });
}

impl<S: PodSet> ReplicaSetController<S> {
    /// Returns active pods of all sets with the same owner, for spreading deletions over nodes.
    fn list_siblings(&self, set: &S) -> Vec<Arc<Pod>> {
        // Pods of all revisions of a Deployment count: spreading is about the application, not
        // about one set.
        let sets = match set.controller() {
            Some(owner) => self.sets.owned_by(&owner.uid),
            None => Vec::new(),
        };
        let uids: Vec<_> = if sets.is_empty() {
            vec![set.uid()]
        } else {
            sets.iter().map(|s| s.uid()).collect()
        };
        uids.into_iter()
            .flat_map(|uid| self.pods.owned_by(uid))
            .filter(|p| pods::is_active(p))
            .collect()
    }
}

impl<S: PodSet> Decide for ReplicaSetController<S> {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        let candidates = self.pods.claim_candidates(set.namespace(), set.uid());
        reconcile_set(set.as_ref(), &candidates, &self.list_siblings(&set), now)
    }

    fn on_failure(&self, key: &str, error: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        report_failure(
            set.as_ref(),
            &self.pods.claim_candidates(set.namespace(), set.uid()),
            error,
            now,
        )
    }
}
