//! Revision history: deletes old ReplicaSets above `revisionHistoryLimit`, oldest revision first.

use controllers_runtime::{Action, Meta};

use super::plan::{Plan, Work};
use super::replica_set;

/// Deletes surplus old sets that are empty and whose status is up to date.
pub fn clean_up(plan: &mut Plan<'_>) {
    let Some(limit) = plan.d.spec.as_ref().and_then(|s| s.revision_history_limit) else {
        return;
    };
    let mut alive: Vec<_> = plan.old.iter().filter(|w| !w.rs.is_deleting()).collect();
    let surplus = alive
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    // By revision and not by age: an undo gives an old set a new revision, and it must not be
    // deleted first.
    alive.sort_by_key(|w| replica_set::revision_of(&w.rs));
    let gone: Vec<_> = alive
        .into_iter()
        .take(surplus)
        .filter(|w| is_idle(w))
        .map(|w| Action::delete(&w.rs))
        .collect();
    plan.deletions.extend(gone);
}

fn is_idle(work: &Work) -> bool {
    let status = work.rs.status.clone().unwrap_or_default();
    // A set that is still scaling down has pods. Deleting it would orphan or cascade in the middle
    // of a rollout.
    status.replicas == 0
        && work.replicas() == 0
        && status.observed_generation.unwrap_or(0) >= work.rs.generation()
}
