//! The end of a Job, and the time of its terminal condition.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus, SuccessPolicyRule};

use controllers_runtime::{Action, object_reference, pods as pod_state, time};

use super::count::Tally;
use super::indexes::{Indexes, Intervals};
use super::view::View;

const FAILURE: &str = "FailureTarget";
const SUCCESS: &str = "SuccessCriteriaMet";

/// A decided end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// `FailureTarget` or `SuccessCriteriaMet`.
    pub kind: &'static str,
    /// Reason.
    pub reason: String,
    /// Text.
    pub message: String,
}

impl End {
    fn new(kind: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Returns the time at which the Job finished, if it has.
pub fn finished_at(job: &Job) -> Option<Timestamp> {
    let conditions = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let mut ended = conditions
        .filter(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    ended.next().map(|c| {
        c.last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0)
    })
}

/// Returns the end that stops all pods, if it is reached.
pub fn decide_end(view: &View<'_>, tally: &Tally, indexes: Option<&Indexes>) -> Option<End> {
    // A decided end is never reconsidered: pods that fail while they are stopped must not change
    // it.
    for kind in [FAILURE, SUCCESS] {
        if let Some(known) = view.find_true_condition(kind) {
            let text = |t: &Option<String>| t.clone().unwrap_or_default();
            return Some(End {
                kind,
                reason: text(&known.reason),
                message: text(&known.message),
            });
        }
    }
    // The order is upstream's: if several reasons apply at once, clients see the same one.
    if let Some(text) = &tally.fail_job {
        return Some(End::new(FAILURE, "PodFailurePolicy", text.clone()));
    }
    if exceeds_backoff_limit(view, tally) {
        return Some(End::new(
            FAILURE,
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ));
    }
    if exceeds_deadline(view) {
        return Some(End::new(
            FAILURE,
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ));
    }
    indexes.and_then(|i| by_index(view, i))
}

fn exceeds_backoff_limit(view: &View<'_>, tally: &Tally) -> bool {
    let limit = i64::from(view.spec.backoff_limit.unwrap_or(6));
    let failed = i64::try_from(tally.failed).unwrap_or(i64::MAX);
    if failed > limit {
        return true;
    }
    let policy = view
        .spec
        .template
        .spec
        .as_ref()
        .and_then(|s| s.restart_policy.as_deref());
    // With Never each failure is a pod of its own. With OnFailure containers restart in place and
    // only their restarts show it.
    if policy != Some("OnFailure") {
        return false;
    }
    let alive = view
        .pods
        .iter()
        .filter(|p| matches!(pod_state::phase(p), "Running" | "Pending"));
    let restarts = i64::from(alive.map(|p| pod_state::count_restarts(p)).sum::<i32>());
    if limit == 0 {
        restarts > 0
    } else {
        restarts >= limit
    }
}

fn exceeds_deadline(view: &View<'_>) -> bool {
    let (Some(limit), Some(start)) = (view.spec.active_deadline_seconds, &view.old.start_time)
    else {
        return false;
    };
    // A suspended Job does not use up its deadline: startTime is set again when it continues.
    !view.is_suspended()
        && time::duration_until(time::seconds_after(start.0, limit), view.now).is_zero()
}

fn by_index(view: &View<'_>, indexes: &Indexes) -> Option<End> {
    let total = view.completions().unwrap_or(0);
    if view.spec.backoff_limit_per_index.is_some() {
        let limit = view
            .spec
            .max_failed_indexes
            .and_then(|n| usize::try_from(n).ok());
        if limit.is_some_and(|n| indexes.failed.len() > n) {
            let text = "Job has exceeded the specified maximal number of failed indexes";
            return Some(End::new(FAILURE, "MaxFailedIndexesExceeded", text));
        }
        if !indexes.failed.is_empty() && indexes.failed.len() + indexes.succeeded.len() >= total {
            return Some(End::new(FAILURE, "FailedIndexes", "Job has failed indexes"));
        }
    }
    let rules = view.spec.success_policy.iter().flat_map(|p| &p.rules);
    let hit = rules
        .enumerate()
        .find(|(_, rule)| satisfies_rule(rule, indexes, total))?;
    Some(End::new(
        SUCCESS,
        "SuccessPolicy",
        format!("Matched rules at index {}", hit.0),
    ))
}

fn satisfies_rule(rule: &SuccessPolicyRule, indexes: &Indexes, total: usize) -> bool {
    let count = rule.succeeded_count.and_then(|n| usize::try_from(n).ok());
    match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Intervals::parse(text, total);
            let have = wanted.len() - wanted.minus(&indexes.succeeded).len();
            have >= count.unwrap_or(wanted.len())
        }
        None => count.is_some_and(|n| indexes.succeeded.len() >= n),
    }
}

/// Returns the end of a Job that has all its completions.
pub fn completion_end(view: &View<'_>, tally: &Tally, active: usize) -> Option<End> {
    let done = match view.completions() {
        None => tally.succeeded > 0 && active == 0,
        Some(n) => tally.succeeded >= n,
    };
    (done && !view.is_suspended()).then(|| {
        End::new(
            SUCCESS,
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        )
    })
}

/// Writes the decided end as a condition.
pub fn write_end_condition(view: &View<'_>, status: &mut JobStatus, end: Option<&End>) {
    if let Some(end) = end {
        set_condition(
            status,
            view.now,
            end.kind,
            "True",
            &end.reason,
            &end.message,
        );
    }
}

/// Writes the terminal condition once every pod has terminated and is counted.
pub fn write_terminal_condition(
    view: &View<'_>,
    tally: &Tally,
    status: &mut JobStatus,
    actions: &mut Vec<Action>,
) {
    let uncounted = tally
        .uncounted
        .failed
        .iter()
        .chain(&tally.uncounted.succeeded)
        .flatten()
        .next()
        .is_some();
    // The terminal condition means that no pod runs any more, so it waits for pods in
    // deletion too.
    let running = view.pods.iter().any(|p| !pod_state::is_terminal(p));
    if uncounted
        || running
        || !tally.release.is_empty()
        || view.job.metadata.deletion_timestamp.is_some()
    {
        return;
    }
    let about = object_reference(view.job);
    let held = |status: &JobStatus, kind: &str| {
        let all = status.conditions.iter().flatten();
        all.into_iter()
            .find(|c| c.type_ == kind && c.status == "True")
            .cloned()
    };
    if let Some(end) = held(status, FAILURE) {
        let (reason, message) = (
            end.reason.unwrap_or_default(),
            end.message.unwrap_or_default(),
        );
        set_condition(status, view.now, "Failed", "True", &reason, &message);
        actions.push(Action::warning(&about, &reason, message));
    } else if let Some(end) = held(status, SUCCESS) {
        let (reason, message) = (
            end.reason.unwrap_or_default(),
            end.message.unwrap_or_default(),
        );
        set_condition(status, view.now, "Complete", "True", &reason, &message);
        status.completion_time = Some(time::api_time(view.now));
        actions.push(Action::event(&about, "Completed", "Job completed"));
    }
}

/// Sets a condition; the transition time changes with the status only.
pub fn set_condition(
    status: &mut JobStatus,
    now: Timestamp,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
) {
    let all = status.conditions.get_or_insert_default();
    let fresh = JobCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(time::api_time(now)),
        last_transition_time: Some(time::api_time(now)),
    };
    match all.iter_mut().find(|c| c.type_ == kind) {
        // The first reason stays.
        Some(old) if old.status == value => {}
        Some(old) => *old = fresh,
        None => all.push(fresh),
    }
}
