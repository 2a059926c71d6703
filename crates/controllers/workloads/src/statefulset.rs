//! StatefulSets: pods with stable names, created and replaced in order.
//!
//! A terminating pod is never replaced: its name is in use until it is deleted. With ordered
//! management one pod changes at a time, and each waits for the pods before it.

mod claims;
mod identity;
mod order;
mod status;
mod view;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, claim, pods};

use crate::history;
use view::{Claims, View};
pub use wiring::add_stateful_set_controller;

/// Returns the actions for one StatefulSet. `candidates` are the namespace's pods that match or are
/// owned, `revisions` the owned ControllerRevisions.
pub fn reconcile_stateful_set(
    set: &StatefulSet,
    candidates: &[Arc<Pod>],
    revisions: &[Arc<ControllerRevision>],
    claims: &Claims,
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &set.spec else {
        return Vec::new();
    };
    let claim = claim::claim_objects(
        set,
        &spec.selector,
        candidates,
        // A pod with another name could never be replaced by one of the same name, so it is not
        // adopted.
        |p| identity::parse_ordinal(set, p).is_some(),
        &[],
    );
    let mut actions = claim.actions;
    let collisions = set.status.as_ref().and_then(|s| s.collision_count);
    // The revision of the template is needed even while the set is deleted: the status reports it.
    let latest = history::find_current(set, &spec.template, collisions, revisions);
    let named = set
        .status
        .as_ref()
        .and_then(|s| s.current_revision.as_deref())
        .unwrap_or_default();
    let current = revisions
        .iter()
        .find(|r| r.name() == named)
        .map(|r| r.as_ref().clone());
    if !set.is_deleting() {
        actions.extend(latest.actions);
    }
    let view = View {
        set,
        pods: claim.owned,
        // A set without a recorded revision is new, so its first pods are of the latest one.
        current: current.unwrap_or_else(|| latest.revision.clone()),
        update: latest.revision,
        claims,
        now,
    };
    if !set.is_deleting() {
        order::plan_steps(&view, &mut actions);
        actions.extend(prune_revisions(
            &view,
            revisions,
            spec.revision_history_limit.unwrap_or(10),
        ));
    }
    actions.extend(status::update_status(&view));
    actions.extend(next_available(&view));
    actions
}

fn prune_revisions(
    view: &View<'_>,
    revisions: &[Arc<ControllerRevision>],
    limit: i32,
) -> Vec<Action> {
    // Only revisions without pods count against revisionHistoryLimit, as upstream.
    let in_use = |r: &ControllerRevision| {
        r.name() == view.current.name()
            || r.name() == view.update.name()
            || view
                .pods
                .iter()
                .any(|p| p.label(history::POD_LABEL) == Some(r.name()))
    };
    history::truncate_history(revisions, &in_use, limit)
}

fn next_available(view: &View<'_>) -> Option<Action> {
    let waits = view
        .pods
        .iter()
        .filter_map(|p| pods::available_in(p, view.min_ready(), view.now));
    // The end of minReadySeconds causes no event, so the key waits for it.
    let soonest = waits.filter(|s| *s > 0).min()?;
    Some(Action::Requeue(Duration::from_secs(soonest.unsigned_abs())))
}

#[cfg(test)]
mod tests;
