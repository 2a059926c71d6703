//! Jobs: run pods to completion, each counted exactly once.
//!
//! A pod keeps a finalizer until its end is recorded in the status: first its UID is written to
//! `uncountedTerminatedPods`, then the finalizer is removed, then the UID becomes a count. A crash
//! between any two of these writes loses nothing and counts nothing twice. The terminal condition
//! is written last, after `FailureTarget` or `SuccessCriteriaMet` and the termination of every pod.

mod count;
mod failures;
mod indexes;
mod outcome;
mod pods;
mod policy;
mod retry;
mod view;
mod wiring;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Meta, claim, object_reference, pods as pod_state, time};

use count::Tally;
use indexes::Indexes;
pub use outcome::finished_at;
use view::{TRACKING, View};
pub use wiring::add_job_controller;

/// Returns the actions for one Job. `candidates` are the namespace's pods that match or are owned.
pub fn reconcile_job(job: &Job, candidates: &[Arc<Pod>], now: Timestamp) -> Vec<Action> {
    let Some(spec) = &job.spec else {
        return Vec::new();
    };
    if spec
        .managed_by
        .as_deref()
        // KEP-4368: such a Job belongs to another controller, including its status and finalizers.
        .is_some_and(|m| m != "kubernetes.io/job-controller")
    {
        return Vec::new();
    }
    let selector = spec.selector.clone().unwrap_or_default();
    let claim = claim::claim_objects(job, &selector, candidates, |_| true, &[TRACKING]);
    let old = job.status.clone().unwrap_or_default();
    let view = View {
        job,
        spec,
        old,
        pods: claim.owned,
        now,
    };
    let mut actions = claim.actions;
    // Pods of a finished Job only lose their finalizer. New failures must not change a recorded
    // end.
    if finished_at(job).is_some() {
        actions.extend(pods::release_pods(view.pods.iter()));
        return actions;
    }
    actions.extend(advance_job(&view));
    actions
}

fn advance_job(view: &View<'_>) -> Vec<Action> {
    let indexes = view.is_indexed().then(|| Indexes::from_view(view));
    let kept = indexes
        .as_ref()
        .map(|indexes| retry::find_kept_pods(view, indexes))
        .unwrap_or_default();
    let mut tally = count_pods(view, indexes.as_ref(), &kept);
    let mut status = view.old.clone();
    let mut actions = Vec::new();
    let mut requeue: Vec<Duration> = Vec::new();
    set_start_time(view, &mut status);
    // The end is decided before pods are created, so that no pod starts for a Job that has failed.
    let end = outcome::decide_end(view, &tally, indexes.as_ref());
    if end.is_some() && !kept.is_empty() {
        // The Job ends, so no pod keeps its finalizer for a successor: count all.
        tally = count_pods(view, indexes.as_ref(), &HashSet::new());
    }
    let mut active = view.active_pods().len();
    if end.is_some() {
        actions.extend(pods::stop_pods(view, &view.active_pods(), false));
        active = 0;
    } else if !view.job.is_deleting() {
        let moved = pods::manage_pods(view, &tally, indexes.as_ref());
        active = moved.active;
        actions.extend(moved.actions);
        requeue.extend(moved.requeue);
        update_suspension(view, &mut status, &mut actions);
    }
    // Success is decided last: an end by failure or by policy takes precedence, as upstream.
    let end = end.or_else(|| outcome::completion_end(view, &tally, active));
    outcome::write_end_condition(view, &mut status, end.as_ref());
    fill_status(view, &tally, indexes.as_ref(), active, &mut status);
    outcome::write_terminal_condition(view, &tally, &mut status, &mut actions);
    if status != view.old {
        actions.push(Action::update_status(&Job {
            status: Some(status.clone()),
            ..view.job.clone()
        }));
    }
    // After the status write: once a finalizer is removed the pod may disappear, and its end is
    // known only from the status.
    actions.extend(pods::release_pods(tally.release.iter()));
    requeue.extend(deadline_delay(view, &status));
    actions.extend(requeue.into_iter().min().map(Action::Requeue));
    actions
}

fn count_pods(view: &View<'_>, indexes: Option<&Indexes>, kept: &HashSet<&str>) -> Tally {
    let mut tally = count::tally_pods(view, kept);
    if let Some(indexes) = indexes {
        tally.succeeded = indexes.succeeded.len();
    }
    tally
}

/// Sets the start time of a Job that is not suspended.
fn set_start_time(view: &View<'_>, status: &mut JobStatus) {
    if status.start_time.is_none() && !view.is_suspended() {
        status.start_time = Some(time::api_time(view.now));
    }
}

/// Updates the Suspended condition; resuming sets a new start time.
fn update_suspension(view: &View<'_>, status: &mut JobStatus, actions: &mut Vec<Action>) {
    let before = view.find_true_condition("Suspended").is_some();
    let about = object_reference(view.job);
    if view.is_suspended() && !before {
        outcome::set_condition(
            status,
            view.now,
            "Suspended",
            "True",
            "JobSuspended",
            "Job suspended",
        );
        // A suspended Job has no running time: resuming starts its deadline again.
        status.start_time = None;
        actions.push(Action::event(&about, "Suspended", "Job suspended"));
    } else if !view.is_suspended() && before {
        outcome::set_condition(
            status,
            view.now,
            "Suspended",
            "False",
            "JobResumed",
            "Job resumed",
        );
        status.start_time = Some(time::api_time(view.now));
        actions.push(Action::event(&about, "Resumed", "Job resumed"));
    }
}

fn fill_status(
    view: &View<'_>,
    tally: &Tally,
    indexes: Option<&Indexes>,
    active: usize,
    status: &mut JobStatus,
) {
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let some = |n: usize| Some(number(n)).filter(|n| *n != 0);
    let ready = view
        .pods
        .iter()
        .filter(|p| pod_state::is_active(p) && pod_state::is_ready(p))
        .count();
    status.active = some(active);
    status.ready = Some(number(ready.min(active)));
    status.terminating = Some(number(view.count_terminating()));
    status.failed = some(tally.counted_failed);
    status.succeeded = some(tally.counted_succeeded);
    status.uncounted_terminated_pods = Some(tally.uncounted.clone());
    if let Some(indexes) = indexes {
        status.succeeded = some(indexes.succeeded.len());
        status.completed_indexes = Some(indexes.succeeded.to_string()).filter(|t| !t.is_empty());
        let failed = indexes.failed.to_string();
        status.failed_indexes = view.spec.backoff_limit_per_index.map(|_| failed);
    }
}

/// Returns the time until `activeDeadlineSeconds` expires.
fn deadline_delay(view: &View<'_>, status: &JobStatus) -> Option<Duration> {
    let seconds = view.spec.active_deadline_seconds?;
    let start = status.start_time.as_ref()?;
    let open = !view.is_suspended()
        && !status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "FailureTarget");
    open.then(|| {
        time::duration_until(time::seconds_after(start.0, seconds), view.now)
            + Duration::from_millis(50)
    })
}

#[cfg(test)]
mod tests;
