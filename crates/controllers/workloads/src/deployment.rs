//! Deployments: one ReplicaSet per revision; a rollout moves pods from the old ones to the new one.
//!
//! A reconcile works on copies of the ReplicaSets, then writes those that changed, each object
//! once. The status is computed from the reported status of the ReplicaSets, so a reconcile that
//! scales is followed by another when they have caught up.

mod bounds;
mod history;
mod plan;
mod replica_set;
mod revision;
mod rolling;
mod scale;
mod status;
mod wiring;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, claim, labels, object_reference, pods};

pub use bounds::scale_value;
use plan::Plan;
pub use wiring::add_deployment_controller;

/// Returns the actions for one Deployment. `sets` are the namespace's ReplicaSets that match or are
/// owned, `members` the pods of the owned ones.
pub fn reconcile_deployment(
    d: &Deployment,
    sets: &[Arc<ReplicaSet>],
    members: &[Arc<Pod>],
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &d.spec else {
        return Vec::new();
    };
    if labels::is_empty(&spec.selector) {
        let text = "This deployment is selecting all pods. A non-empty selector is required.";
        return vec![Action::warning(&object_reference(d), "SelectingAll", text)];
    }
    // Like upstream, sets are adopted even while the Deployment is paused; only its deletion stops
    // it.
    let claim = claim::claim_objects(d, &spec.selector, sets, |_| true, &[]);
    let mut plan = Plan::new(d, &claim.owned, now);
    plan.actions = claim.actions;
    // The garbage collector deletes the sets. Scaling them here would race with it, so only the
    // status follows them down.
    if d.is_deleting() {
        status::sync_status(&mut plan);
        return plan.into_actions();
    }
    // Before any other step: the progress deadline counts from the time at which the rollout was
    // resumed.
    status::mark_paused(&mut plan);
    // A change of the size is handled before a change of the template: the bounds of a rolling
    // update are computed from sets that already have the new size.
    if spec.paused == Some(true) || scale::is_due(&plan) {
        revision::sync_revision(&mut plan, false);
        scale::scale_all(&mut plan);
        if spec.paused == Some(true) {
            history::clean_up(&mut plan);
        }
        status::sync_status(&mut plan);
    } else if bounds::is_rolling(d) {
        roll_out(&mut plan);
    } else {
        recreate_pods(&mut plan, members);
    }
    plan.into_actions()
}

fn roll_out(plan: &mut Plan<'_>) {
    revision::sync_revision(plan, true);
    // One direction in each reconcile, as upstream: availability is read again from the status of
    // the sets before the next step.
    if !rolling::grow_new(plan)
        && !rolling::shrink_old(plan)
        && status::is_complete(&plan.d, &plan.old_status)
    {
        history::clean_up(plan);
    }
    status::sync_rollout_status(plan);
}

fn recreate_pods(plan: &mut Plan<'_>, members: &[Arc<Pod>]) {
    revision::sync_revision(plan, false);
    // Recreate guarantees that pods of two revisions never run together, so a set that was scaled
    // down in this reconcile must be observed at zero first.
    let mut stopped = false;
    for index in 0..plan.old.len() {
        stopped |= plan.scale_old(index, 0);
    }
    let new_uid = plan
        .new
        .as_ref()
        .map(|w| w.rs.uid().to_owned())
        .unwrap_or_default();
    // The set's status counts no pods that are being deleted, although their containers may still
    // run. So the pods themselves are checked.
    let running = members
        .iter()
        .any(|p| !pods::is_terminal(p) && !p.is_controlled_by(&new_uid));
    if !stopped && !running {
        revision::sync_revision(plan, true);
        let wanted = plan.desired_replicas();
        plan.scale_new(wanted);
        if status::is_complete(&plan.d, &plan.old_status) {
            history::clean_up(plan);
        }
    }
    status::sync_rollout_status(plan);
}

#[cfg(test)]
mod tests;
