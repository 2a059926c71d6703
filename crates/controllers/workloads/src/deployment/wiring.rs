//! Enqueues Deployments: on their own changes, on changes of their sets, and at the end of a pod
//! with Recreate.

use std::sync::Arc;

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake};

use super::{bounds, reconcile};

struct DeploymentController {
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
}

/// Sets up the Deployment controller.
pub fn deployments(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let deployments = setup
        .informers
        .of::<Deployment>()
        .index_namespace()
        .on(wake::itself(&queue))
        .cache();
    let sets = wake::on_owned(
        setup.informers.of::<ReplicaSet>(),
        &queue,
        &deployments,
        selector,
    );
    let pods = setup
        .informers
        .of::<Pod>()
        .index_claims()
        .on(pod_gone(&queue, &deployments, &sets))
        .cache();
    setup.decide(
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

fn selector(d: &Deployment) -> LabelSelector {
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
        let candidates = self.sets.candidates(d.namespace(), d.uid());
        let members: Vec<Arc<Pod>> = if bounds::is_rolling(&d) {
            Vec::new()
        } else {
            candidates
                .iter()
                .filter(|rs| rs.controlled_by(d.uid()))
                .flat_map(|rs| self.pods.owned(rs.uid()))
                .collect()
        };
        reconcile(&d, &candidates, &members, now)
    }
}
