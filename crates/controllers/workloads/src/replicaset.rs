//! ReplicaSet and ReplicationController: keep the desired number of active pods.
//!
//! Surplus pods are deleted in upstream's order: unassigned, pending, unready, low deletion cost,
//! crowded on a node, young.

mod rank;
mod wiring;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, Write, claim, labels, object_reference, pods, time};

use crate::set::PodSet;
use crate::template;

pub use wiring::{ReplicaSetController, add_replica_set_controller, add_replication_controller};

/// Maximum number of creations or deletions in one reconcile.
const BURST: usize = 500;

/// Returns the actions for one set. `candidates` are the namespace's pods that match or are owned;
/// `siblings` are the active pods of sets with the same owner, for spreading deletions.
pub fn reconcile_set<S: PodSet>(
    set: &S,
    candidates: &[Arc<Pod>],
    siblings: &[Arc<Pod>],
    now: Timestamp,
) -> Vec<Action> {
    let (mut actions, owned) = claim_pods(set, candidates);
    let active: Vec<_> = owned
        .iter()
        .filter(|p| pods::is_active(p))
        .cloned()
        .collect();
    if !set.is_deleting() {
        actions.extend(manage_pods(set, &active, siblings));
    }
    let status = compute_status(set, &owned, now, None);
    if let Some(wait) = next_available(set, &active, now) {
        actions.push(Action::Requeue(wait));
    }
    actions.extend(write_status(set, status));
    actions
}

/// Returns the status to write after pods could not be created or deleted.
pub fn report_failure<S: PodSet>(
    set: &S,
    candidates: &[Arc<Pod>],
    error: &str,
    now: Timestamp,
) -> Vec<Action> {
    let (_, owned) = claim_pods(set, candidates);
    write_status(set, compute_status(set, &owned, now, Some(error)))
        .into_iter()
        .collect()
}

fn claim_pods<S: PodSet>(set: &S, candidates: &[Arc<Pod>]) -> (Vec<Action>, Vec<Arc<Pod>>) {
    // Upstream filters inactive pods before it claims, so that a set does not adopt pods that have
    // terminated.
    let live: Vec<_> = candidates
        .iter()
        .filter(|p| !pods::is_terminal(p))
        .cloned()
        .collect();
    // Pods in deletion stay owned: they count as terminatingReplicas.
    let claim = claim::claim_objects(set, &set.pod_selector(), &live, |_| true, &[]);
    (claim.actions, claim.owned)
}

fn manage_pods<S: PodSet>(set: &S, active: &[Arc<Pod>], siblings: &[Arc<Pod>]) -> Option<Action> {
    let wanted = usize::try_from(set.replicas()).unwrap_or(0);
    let about = object_reference(set);
    let writes: Vec<_> = if active.len() < wanted {
        let write = Write::create(&template::build_pod(set, &set.pod_template())).notes(
            &about,
            ("SuccessfulCreate", "Created pod: {name}"),
            ("FailedCreate", "Error creating: {error}"),
        );
        // The burst bounds the writes of one reconcile. The event of the status update starts the
        // next one.
        vec![write; (wanted - active.len()).min(BURST)]
    } else {
        let surplus = (active.len() - wanted).min(BURST);
        rank::select_victims(active, siblings, surplus)
            .iter()
            .map(|pod| {
                Write::delete(pod.as_ref()).notes(
                    &about,
                    ("SuccessfulDelete", "Deleted pod: {name}"),
                    ("FailedDelete", "Error deleting: {error}"),
                )
            })
            .collect()
    };
    (!writes.is_empty()).then_some(Action::Batch(writes))
}

fn compute_status<S: PodSet>(
    set: &S,
    owned: &[Arc<Pod>],
    now: Timestamp,
    error: Option<&str>,
) -> ReplicaSetStatus {
    let old = set.status();
    let active: Vec<_> = owned.iter().filter(|p| pods::is_active(p)).collect();
    let count = |test: &dyn Fn(&Pod) -> bool| {
        i32::try_from(active.iter().filter(|p| test(p)).count()).unwrap_or(i32::MAX)
    };
    let template = set
        .pod_template()
        .metadata
        .unwrap_or_default()
        .labels
        .unwrap_or_default();
    let terminating = owned.iter().filter(|p| pods::is_terminating(p)).count();
    ReplicaSetStatus {
        replicas: count(&|_| true),
        fully_labeled_replicas: Some(count(&|p| {
            labels::labels_match_map(Some(&template), p.meta().labels.as_ref())
        })),
        ready_replicas: Some(count(&pods::is_ready)),
        available_replicas: Some(count(&|p| pods::is_available(p, set.min_ready(), now))),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: Some(set.generation()),
        conditions: update_conditions(old.conditions, set.replicas(), active.len(), error, now),
    }
}

fn update_conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    wanted: i32,
    active: usize,
    error: Option<&str>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut all = old.unwrap_or_default();
    let Some(error) = error else {
        // A reconcile without an error clears the condition, which a Deployment would otherwise
        // show forever.
        all.retain(|c| c.type_ != "ReplicaFailure");
        return (!all.is_empty()).then_some(all);
    };
    // The first error stays until it is resolved, so that its transition time is that of the first
    // failure.
    if !all.iter().any(|c| c.type_ == "ReplicaFailure") {
        let short = i64::from(wanted) > i64::try_from(active).unwrap_or(i64::MAX);
        all.push(ReplicaSetCondition {
            type_: "ReplicaFailure".to_owned(),
            status: "True".to_owned(),
            reason: Some(
                if short {
                    "FailedCreate"
                } else {
                    "FailedDelete"
                }
                .to_owned(),
            ),
            message: Some(error.to_owned()),
            last_transition_time: Some(time::api_time(now)),
        });
    }
    Some(all)
}

/// Returns a status update if the status differs.
fn write_status<S: PodSet>(set: &S, status: ReplicaSetStatus) -> Option<Action> {
    let fresh = set.with_status(status);
    // The API server omits zeros and empty lists of the status.
    let zero = |s: ReplicaSetStatus| ReplicaSetStatus {
        fully_labeled_replicas: s.fully_labeled_replicas.filter(|n| *n != 0),
        ready_replicas: s.ready_replicas.filter(|n| *n != 0),
        available_replicas: s.available_replicas.filter(|n| *n != 0),
        terminating_replicas: s.terminating_replicas.filter(|n| *n != 0),
        conditions: s.conditions.filter(|c| !c.is_empty()),
        ..s
    };
    (zero(fresh.status()) != zero(set.status())).then(|| Action::update_status(&fresh))
}

/// Returns the time until the next ready pod becomes available.
fn next_available<S: PodSet>(set: &S, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    // A pod becomes available by the passing of time alone, without an event.
    let waits = active
        .iter()
        .filter_map(|p| pods::available_in(p, set.min_ready(), now));
    let soonest = waits.filter(|s| *s > 0).min()?;
    Some(Duration::from_secs(soonest.unsigned_abs()))
}

#[cfg(test)]
mod tests;
