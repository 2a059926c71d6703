//! Deployments: one ReplicaSet per revision; a rollout moves pods from the old ones to the new one.
//!
//! A reconcile works on copies of the ReplicaSets, then writes those that changed, each object
//! once. The status is computed from the reported status of the ReplicaSets, so a reconcile that
//! scales is followed by another when they have caught up.

mod bounds;
mod history;
mod plan;
mod revision;
mod rolling;
mod scale;
mod status;
mod wiring;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, claim, labels, pods, reference};

pub use bounds::scaled;
use plan::Plan;
pub use wiring::deployments;

/// Returns the actions for one Deployment. `sets` are the namespace's ReplicaSets that match or are
/// owned, `members` the pods of the owned ones.
pub fn reconcile(
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
        return vec![Action::warning(&reference(d), "SelectingAll", text)];
    }
    let claim = claim::claim(d, &spec.selector, sets, |_| true, &[]);
    let mut plan = Plan::new(d, &claim.owned, now);
    plan.actions = claim.actions;
    if d.deleting() {
        status::sync(&mut plan);
        return plan.finish();
    }
    status::mark_paused(&mut plan);
    if spec.paused == Some(true) || scale::is_due(&plan) {
        revision::sync(&mut plan, false);
        scale::all(&mut plan);
        if spec.paused == Some(true) {
            history::clean_up(&mut plan);
        }
        status::sync(&mut plan);
    } else if bounds::is_rolling(d) {
        roll(&mut plan);
    } else {
        recreate(&mut plan, members);
    }
    plan.finish()
}

fn roll(plan: &mut Plan<'_>) {
    revision::sync(plan, true);
    if !rolling::grow_new(plan)
        && !rolling::shrink_old(plan)
        && status::is_complete(&plan.d, &plan.old_status)
    {
        history::clean_up(plan);
    }
    status::rollout(plan);
}

fn recreate(plan: &mut Plan<'_>, members: &[Arc<Pod>]) {
    revision::sync(plan, false);
    let mut stopped = false;
    for index in 0..plan.old.len() {
        stopped |= plan.scale_old(index, 0);
    }
    let new_uid = plan
        .new
        .as_ref()
        .map(|w| w.rs.uid().to_owned())
        .unwrap_or_default();
    let running = members
        .iter()
        .any(|p| !pods::is_terminal(p) && !p.controlled_by(&new_uid));
    if !stopped && !running {
        revision::sync(plan, true);
        let wanted = plan.wanted();
        plan.scale_new(wanted);
        if status::is_complete(&plan.d, &plan.old_status) {
            history::clean_up(plan);
        }
    }
    status::rollout(plan);
}

#[cfg(test)]
mod tests;
