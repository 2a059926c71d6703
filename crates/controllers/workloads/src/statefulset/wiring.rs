//! Enqueues StatefulSets.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::reconcile_stateful_set;
use super::view::Claims;

struct StatefulSetController {
    sets: Cache<StatefulSet>,
    pods: Cache<Pod>,
    revisions: Cache<ControllerRevision>,
    claims: Cache<PersistentVolumeClaim>,
}

/// Sets up the StatefulSet controller.
pub fn add_stateful_set_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let sets = setup
        .informers
        .for_kind::<StatefulSet>()
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
    let claims = setup
        .informers
        .for_kind::<PersistentVolumeClaim>()
        .index_namespace()
        .cache();
    setup.add_reconciler(
        "statefulset-controller",
        workers,
        queue,
        StatefulSetController {
            sets,
            pods,
            revisions,
            claims,
        },
    );
}

fn pod_selector(set: &StatefulSet) -> LabelSelector {
    set.spec
        .as_ref()
        .map(|s| s.selector.clone())
        .unwrap_or_default()
}

impl Decide for StatefulSetController {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(set) = self.sets.get(key) else {
            return Vec::new();
        };
        let pods = self.pods.claim_candidates(set.namespace(), set.uid());
        let revisions = self.revisions.claim_candidates(set.namespace(), set.uid());
        let owned = crate::history::claim_revisions(set.as_ref(), &pod_selector(&set), &revisions);
        let has_claims = set
            .spec
            .as_ref()
            .is_some_and(|s| s.volume_claim_templates.iter().flatten().next().is_some());
        // A namespace may have many claims, and a set without templates needs none of them.
        let claims: Claims = if has_claims {
            let all = self.claims.in_namespace(set.namespace());
            all.into_iter().map(|c| (c.name().to_owned(), c)).collect()
        } else {
            Claims::new()
        };
        let mut actions = owned.actions;
        actions.extend(reconcile_stateful_set(
            &set,
            &pods,
            &owned.owned,
            &claims,
            now,
        ));
        actions
    }
}
