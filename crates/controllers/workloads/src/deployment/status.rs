//! Status and conditions of a Deployment, as `kubectl rollout status` expects them.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};

use controllers_runtime::{Meta, time};

use super::bounds;
use super::plan::{Plan, Work};
use crate::set::PodSet;

const AVAILABLE_REASON: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Returns whether all desired pods exist, are updated and available.
pub fn is_complete(d: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = bounds::desired_replicas(d);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation.unwrap_or(0) >= d.generation()
}

/// Updates counts and the Available condition, but not Progressing.
pub fn sync_status(plan: &mut Plan<'_>) {
    let status = compute_status(plan);
    store_status(plan, status);
}

/// Updates counts and all conditions, with the progress deadline.
pub fn sync_rollout_status(plan: &mut Plan<'_>) {
    let mut status = compute_status(plan);
    update_progress(plan, &mut status);
    let failure = find_failure(plan);
    match failure {
        Some(condition) => set_condition(&mut status, condition),
        None => remove_condition(&mut status, "ReplicaFailure"),
    }
    plan.requeue = stuck_check(plan, &status);
    store_status(plan, status);
}

/// Sets the reasons Paused and Resumed, from which the deadline counts.
pub fn mark_paused(plan: &mut Plan<'_>) {
    if progress_deadline(&plan.d).is_none() {
        return;
    }
    let paused = plan.d.spec.as_ref().is_some_and(|s| s.paused == Some(true));
    let mut status = plan.d.status.clone().unwrap_or_default();
    let reason = find_condition(&status, "Progressing")
        .and_then(|c| c.reason.clone())
        .unwrap_or_default();
    // A reported lack of progress is not overwritten by a pause, as upstream.
    if reason == TIMED_OUT {
        return;
    }
    match (paused, reason.as_str() == "DeploymentPaused") {
        (true, false) => set_condition(
            &mut status,
            new_condition(
                plan,
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused",
            ),
        ),
        (false, true) => set_condition(
            &mut status,
            new_condition(
                plan,
                "Progressing",
                "Unknown",
                "DeploymentResumed",
                "Deployment is resumed",
            ),
        ),
        _ => return,
    }
    plan.d.status = Some(status);
}

/// Records that the new set was found (only if nothing is recorded yet) or created.
pub fn mark_found(plan: &mut Plan<'_>, reason: &str, message: String, always: bool) {
    let mut status = plan.d.status.clone().unwrap_or_default();
    if progress_deadline(&plan.d).is_none()
        || (!always && find_condition(&status, "Progressing").is_some())
    {
        return;
    }
    set_condition(
        &mut status,
        new_condition(plan, "Progressing", "True", reason, &message),
    );
    plan.d.status = Some(status);
}

fn progress_deadline(d: &Deployment) -> Option<i64> {
    let seconds = d.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then_some(i64::from(seconds))
}

fn compute_status(plan: &Plan<'_>) -> DeploymentStatus {
    let old = plan.d.status.clone().unwrap_or_default();
    let sum = |pick: &dyn Fn(&Work) -> i32| plan.all_sets().map(pick).sum::<i32>();
    let available = sum(&Work::available);
    let mut status = DeploymentStatus {
        observed_generation: Some(plan.d.generation()),
        replicas: Some(sum(&|w| w.rs.status().replicas)),
        updated_replicas: Some(plan.new.as_ref().map_or(0, |w| w.rs.status().replicas)),
        ready_replicas: Some(sum(&|w| w.rs.status().ready_replicas.unwrap_or(0))),
        available_replicas: Some(available),
        unavailable_replicas: Some((plan.total_replicas() - available).max(0)),
        terminating_replicas: Some(sum(&|w| w.rs.status().terminating_replicas.unwrap_or(0))),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let enough = available >= plan.desired_replicas() - bounds::max_unavailable(&plan.d);
    set_condition(
        &mut status,
        if enough {
            new_condition(
                plan,
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            new_condition(
                plan,
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        },
    );
    status
}

fn update_progress(plan: &Plan<'_>, status: &mut DeploymentStatus) {
    let Some(limit) = progress_deadline(&plan.d) else {
        remove_condition(status, "Progressing");
        return;
    };
    let current = find_condition(status, "Progressing").cloned();
    // A complete rollout keeps its condition: a later failure of a pod is no lack of progress of
    // the rollout.
    let settled = status.replicas == status.updated_replicas
        && current.as_ref().and_then(|c| c.reason.as_deref()) == Some(AVAILABLE_REASON);
    if settled {
        return;
    }
    let what = match &plan.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.rs.name()),
        None => format!("Deployment \"{}\"", plan.d.name()),
    };
    if is_complete(&plan.d, status) {
        let text = format!("{what} has successfully progressed.");
        set_condition(
            status,
            new_condition(plan, "Progressing", "True", AVAILABLE_REASON, &text),
        );
    } else if has_progressed(&plan.old_status, status) {
        let mut next = new_condition(
            plan,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            &format!("{what} is progressing."),
        );
        if let Some(current) = current.filter(|c| c.status == "True") {
            next.last_transition_time = current.last_transition_time;
        }
        // Replaced and not updated: lastUpdateTime must change with every step, because the
        // deadline counts from it.
        remove_condition(status, "Progressing");
        status.conditions.get_or_insert_default().push(next);
    } else if timed_out(plan, current.as_ref(), limit) {
        let text = format!("{what} has timed out progressing.");
        set_condition(
            status,
            new_condition(plan, "Progressing", "False", TIMED_OUT, &text),
        );
    }
}

fn has_progressed(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |v: Option<i32>| v.unwrap_or(0);
    n(new.updated_replicas) > n(old.updated_replicas)
        || n(new.replicas) - n(new.updated_replicas) < n(old.replicas) - n(old.updated_replicas)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

fn timed_out(plan: &Plan<'_>, current: Option<&DeploymentCondition>, limit: i64) -> bool {
    let Some(current) = current else { return false };
    match current.reason.as_deref() {
        // A rollout that has completed once does not time out, even if pods become unavailable
        // later.
        Some(AVAILABLE_REASON) => false,
        Some(TIMED_OUT) => true,
        _ => {
            let from = current.last_update_time.as_ref().map_or(plan.now, |t| t.0);
            time::seconds_after(from, limit) < plan.now
        }
    }
}

/// Returns the time until the deadline of a rollout without progress.
fn stuck_check(plan: &Plan<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let limit = progress_deadline(&plan.d)?;
    let current = find_condition(status, "Progressing")?;
    let done = matches!(
        current.reason.as_deref(),
        Some(TIMED_OUT | AVAILABLE_REASON)
    );
    if done || is_complete(&plan.d, status) {
        return None;
    }
    let from = current.last_update_time.as_ref().map_or(plan.now, |t| t.0);
    // No event arrives when a deadline passes. One second more, because times of the API have whole
    // seconds.
    Some(time::duration_until(time::seconds_after(from, limit), plan.now) + Duration::from_secs(1))
}

/// Returns a failure that a set reports, the new one's first.
fn find_failure(plan: &Plan<'_>) -> Option<DeploymentCondition> {
    let reported = plan.new.iter().chain(&plan.old).find_map(|w| {
        let all = w.rs.status.as_ref()?.conditions.as_ref()?;
        all.iter().find(|c| c.type_ == "ReplicaFailure").cloned()
    })?;
    Some(DeploymentCondition {
        type_: reported.type_,
        status: reported.status,
        reason: reported.reason,
        message: reported.message,
        last_transition_time: reported.last_transition_time.clone(),
        last_update_time: reported.last_transition_time,
    })
}

fn store_status(plan: &mut Plan<'_>, status: DeploymentStatus) {
    // The API server omits zeros, so a written zero is read back as absent and would be written
    // again.
    let zero = |n: Option<i32>| n.filter(|n| *n != 0);
    let bare = |s: &DeploymentStatus| DeploymentStatus {
        replicas: zero(s.replicas),
        updated_replicas: zero(s.updated_replicas),
        ready_replicas: zero(s.ready_replicas),
        available_replicas: zero(s.available_replicas),
        unavailable_replicas: zero(s.unavailable_replicas),
        terminating_replicas: zero(s.terminating_replicas),
        ..s.clone()
    };
    if bare(&status) != bare(&plan.d.status.clone().unwrap_or_default()) {
        plan.d.status = Some(status);
    }
}

fn new_condition(
    plan: &Plan<'_>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(time::api_time(plan.now)),
        last_transition_time: Some(time::api_time(plan.now)),
    }
}

fn find_condition<'s>(status: &'s DeploymentStatus, kind: &str) -> Option<&'s DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|c| c.type_ == kind)
}

/// Replaces a condition unless status and reason are equal; the transition time changes with the
/// status.
fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = find_condition(status, &condition.type_) {
        if current.status == condition.status && current.reason == condition.reason {
            return;
        }
        if current.status == condition.status {
            condition.last_transition_time = current.last_transition_time.clone();
        }
    }
    remove_condition(status, &condition.type_.clone());
    status.conditions.get_or_insert_default().push(condition);
}

fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(all) = &mut status.conditions {
        all.retain(|c| c.type_ != kind);
    }
}
