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
    let wanted = bounds::wanted(d);
    status.updated_replicas.unwrap_or(0) == wanted
        && status.replicas.unwrap_or(0) == wanted
        && status.available_replicas.unwrap_or(0) == wanted
        && status.observed_generation.unwrap_or(0) >= d.generation()
}

/// Updates counts and the Available condition, but not Progressing.
pub fn sync(plan: &mut Plan<'_>) {
    let status = calculate(plan);
    store(plan, status);
}

/// Updates counts and all conditions, with the progress deadline.
pub fn rollout(plan: &mut Plan<'_>) {
    let mut status = calculate(plan);
    progress(plan, &mut status);
    let failure = failure(plan);
    match failure {
        Some(condition) => set(&mut status, condition),
        None => remove(&mut status, "ReplicaFailure"),
    }
    plan.requeue = stuck_check(plan, &status);
    store(plan, status);
}

/// Sets the reasons Paused and Resumed, from which the deadline counts.
pub fn mark_paused(plan: &mut Plan<'_>) {
    if deadline(&plan.d).is_none() {
        return;
    }
    let paused = plan.d.spec.as_ref().is_some_and(|s| s.paused == Some(true));
    let mut status = plan.d.status.clone().unwrap_or_default();
    let reason = get(&status, "Progressing")
        .and_then(|c| c.reason.clone())
        .unwrap_or_default();
    if reason == TIMED_OUT {
        return;
    }
    match (paused, reason.as_str() == "DeploymentPaused") {
        (true, false) => set(
            &mut status,
            condition(
                plan,
                "Progressing",
                "Unknown",
                "DeploymentPaused",
                "Deployment is paused",
            ),
        ),
        (false, true) => set(
            &mut status,
            condition(
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
    if deadline(&plan.d).is_none() || (!always && get(&status, "Progressing").is_some()) {
        return;
    }
    set(
        &mut status,
        condition(plan, "Progressing", "True", reason, &message),
    );
    plan.d.status = Some(status);
}

fn deadline(d: &Deployment) -> Option<i64> {
    let seconds = d.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then_some(i64::from(seconds))
}

fn calculate(plan: &Plan<'_>) -> DeploymentStatus {
    let old = plan.d.status.clone().unwrap_or_default();
    let sum = |pick: &dyn Fn(&Work) -> i32| plan.all().map(pick).sum::<i32>();
    let available = sum(&Work::available);
    let mut status = DeploymentStatus {
        observed_generation: Some(plan.d.generation()),
        replicas: Some(sum(&|w| w.rs.status().replicas)),
        updated_replicas: Some(plan.new.as_ref().map_or(0, |w| w.rs.status().replicas)),
        ready_replicas: Some(sum(&|w| w.rs.status().ready_replicas.unwrap_or(0))),
        available_replicas: Some(available),
        unavailable_replicas: Some((plan.total() - available).max(0)),
        terminating_replicas: Some(sum(&|w| w.rs.status().terminating_replicas.unwrap_or(0))),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let enough = available >= plan.wanted() - bounds::max_unavailable(&plan.d);
    set(
        &mut status,
        if enough {
            condition(
                plan,
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            condition(
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

fn progress(plan: &Plan<'_>, status: &mut DeploymentStatus) {
    let Some(limit) = deadline(&plan.d) else {
        remove(status, "Progressing");
        return;
    };
    let current = get(status, "Progressing").cloned();
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
        set(
            status,
            condition(plan, "Progressing", "True", AVAILABLE_REASON, &text),
        );
    } else if moved(&plan.old_status, status) {
        let mut next = condition(
            plan,
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            &format!("{what} is progressing."),
        );
        if let Some(current) = current.filter(|c| c.status == "True") {
            next.last_transition_time = current.last_transition_time;
        }
        remove(status, "Progressing");
        status.conditions.get_or_insert_default().push(next);
    } else if timed_out(plan, current.as_ref(), limit) {
        let text = format!("{what} has timed out progressing.");
        set(
            status,
            condition(plan, "Progressing", "False", TIMED_OUT, &text),
        );
    }
}

fn moved(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |v: Option<i32>| v.unwrap_or(0);
    n(new.updated_replicas) > n(old.updated_replicas)
        || n(new.replicas) - n(new.updated_replicas) < n(old.replicas) - n(old.updated_replicas)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

fn timed_out(plan: &Plan<'_>, current: Option<&DeploymentCondition>, limit: i64) -> bool {
    let Some(current) = current else { return false };
    match current.reason.as_deref() {
        Some(AVAILABLE_REASON) => false,
        Some(TIMED_OUT) => true,
        _ => {
            let from = current.last_update_time.as_ref().map_or(plan.now, |t| t.0);
            time::after(from, limit) < plan.now
        }
    }
}

/// Returns the time until the deadline of a rollout without progress.
fn stuck_check(plan: &Plan<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let limit = deadline(&plan.d)?;
    let current = get(status, "Progressing")?;
    let done = matches!(
        current.reason.as_deref(),
        Some(TIMED_OUT | AVAILABLE_REASON)
    );
    if done || is_complete(&plan.d, status) {
        return None;
    }
    let from = current.last_update_time.as_ref().map_or(plan.now, |t| t.0);
    Some(time::until(time::after(from, limit), plan.now) + Duration::from_secs(1))
}

/// Returns a failure that a set reports, the new one's first.
fn failure(plan: &Plan<'_>) -> Option<DeploymentCondition> {
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

fn store(plan: &mut Plan<'_>, status: DeploymentStatus) {
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

fn condition(
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
        last_update_time: Some(time::api(plan.now)),
        last_transition_time: Some(time::api(plan.now)),
    }
}

fn get<'s>(status: &'s DeploymentStatus, kind: &str) -> Option<&'s DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|c| c.type_ == kind)
}

/// Replaces a condition unless status and reason are equal; the transition time changes with the
/// status.
fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) = get(status, &condition.type_) {
        if current.status == condition.status && current.reason == condition.reason {
            return;
        }
        if current.status == condition.status {
            condition.last_transition_time = current.last_transition_time.clone();
        }
    }
    remove(status, &condition.type_.clone());
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(all) = &mut status.conditions {
        all.retain(|c| c.type_ != kind);
    }
}
