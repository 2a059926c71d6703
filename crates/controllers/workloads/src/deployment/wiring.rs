//! Enqueues Deployments: on their own changes, on changes of their sets, and at the end of a pod
//! with Recreate.

use std::sync::Arc;

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::{bounds, reconcile_deployment};

struct DeploymentController {
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
}

/// Sets up the Deployment controller.
pub fn add_deployment_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let deployments = setup
        .informers
        .for_kind::<Deployment>()
        .index_namespace()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let sets = wake::on_owned(
        setup.informers.for_kind::<ReplicaSet>(),
        &queue,
        &deployments,
        pod_selector,
    );
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index_claims()
        .on_event(pod_gone(&queue, &deployments, &sets))
        .cache();
    setup.add_reconciler(
        "deployment-controller",
        workers,
        queue,
        DeploymentController {
            deployments,
            sets,
            pods,
        },
    );
}

fn pod_selector(d: &Deployment) -> LabelSelector {
    d.spec
        .as_ref()
        .map(|s| s.selector.clone())
        .unwrap_or_default()
}

/// Enqueues a Deployment with the strategy Recreate when its last old pod has terminated. Other
/// strategies do not read pods.
fn pod_gone(
    queue: &Queue,
    deployments: &Cache<Deployment>,
    sets: &Cache<ReplicaSet>,
) -> impl Fn(&Event<Pod>) + Send + Sync + 'static {
    let (queue, deployments, sets) = (queue.clone(), deployments.clone(), sets.clone());
    move |event| {
        let pod = match event {
            Event::Deleted(pod) => pod,
            Event::Applied { new, .. } if controllers_runtime::pods::is_terminal(new) => new,
            Event::Applied { .. } => return,
        };
        let owner = wake::owner_key::<ReplicaSet, Pod>(pod).and_then(|key| sets.get(&key));
        let Some(key) = owner.and_then(|rs| wake::owner_key::<Deployment, ReplicaSet>(&rs)) else {
            return;
        };
        // Only Recreate waits for the end of pods; for other strategies the status of the sets is
        // enough.
        if deployments
            .get(&key)
            .is_some_and(|d| !bounds::is_rolling(&d))
        {
            queue.add(key);
        }
    }
}

impl Decide for DeploymentController {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(d) = self.deployments.get(key) else {
            return Vec::new();
        };
        let candidates = self.sets.claim_candidates(d.namespace(), d.uid());
        let members: Vec<Arc<Pod>> = if bounds::is_rolling(&d) {
            Vec::new()
        } else {
            candidates
                .iter()
                .filter(|rs| rs.is_controlled_by(d.uid()))
                .flat_map(|rs| self.pods.owned_by(rs.uid()))
                .collect()
        };
        reconcile_deployment(&d, &candidates, &members, now)
    }
}
