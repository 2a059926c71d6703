//! Computes the actions for a CronJob: a new Job, deletions of old ones, status.

use api_semantics::cron::Schedule;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{
    Action, Meta, Verb, Write, controller_reference, object_reference, time,
};

use crate::job::finished_at;

/// Annotation with the scheduled time of a Job.
pub const DUE: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Number of missed times above which a warning is recorded.
const MANY: usize = 100;

/// Returns the actions for one CronJob. `jobs` are those it owns.
pub fn reconcile_cron_job(cron: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Vec<Action> {
    let mut actions = Vec::new();
    // The list of active Jobs is brought up to date first, because the concurrency policy depends
    // on it.
    let mut status = sync_active_list(cron, jobs, &mut actions);
    if cron.is_deleting() {
        return actions;
    }
    actions.extend(trim_history(cron, jobs));
    let wait = if cron.spec.suspend == Some(true) {
        None
    } else {
        start_due_job(cron, jobs, now, &mut status, &mut actions)
    };
    if status != cron.status.clone().unwrap_or_default() {
        actions.push(Action::update_status(&CronJob {
            status: Some(status),
            ..cron.clone()
        }));
    }
    actions.extend(wait.map(Action::Requeue));
    actions
}

/// Returns the running Jobs.
fn list_active(jobs: &[Arc<Job>]) -> Vec<&Arc<Job>> {
    jobs.iter()
        .filter(|j| finished_at(j).is_none() && j.annotation(DUE).is_some())
        .collect()
}

fn sync_active_list(cron: &CronJob, jobs: &[Arc<Job>], actions: &mut Vec<Action>) -> CronJobStatus {
    let mut status = cron.status.clone().unwrap_or_default();
    let listed = status.active.clone().unwrap_or_default();
    for job in jobs {
        let known = listed.iter().any(|r| r.uid.as_deref() == Some(job.uid()));
        if let Some(at) = finished_at(job) {
            let succeeded = has_completed(job);
            if known {
                let kind = if succeeded { "Complete" } else { "Failed" };
                let text = format!("Saw completed job: {}, condition: {kind}", job.name());
                actions.push(Action::event(
                    &object_reference(cron),
                    "SawCompletedJob",
                    text,
                ));
            }
            let newer = status
                .last_successful_time
                .as_ref()
                .is_none_or(|t| t.0 < at);
            if succeeded && newer {
                status.last_successful_time = Some(time::api_time(at));
            }
        }
    }
    let mut refs: Vec<_> = list_active(jobs)
        .into_iter()
        .map(|j| active_entry(j, &listed))
        .collect();
    refs.sort_by(|a, b| a.name.cmp(&b.name));
    status.active = (!refs.is_empty()).then_some(refs);
    status
}

fn has_completed(job: &Job) -> bool {
    let all = job
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    all.into_iter()
        .any(|c| c.type_ == "Complete" && c.status == "True")
}

/// Returns the status entry of a running Job; keeps an existing entry.
fn active_entry(job: &Job, listed: &[ObjectReference]) -> ObjectReference {
    let old = listed.iter().find(|r| r.uid.as_deref() == Some(job.uid()));
    old.cloned().unwrap_or_else(|| object_reference(job))
}

/// Deletes finished Jobs above the limits, oldest first.
fn trim_history(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Action> {
    let keep = |n: Option<i32>| n.map(|n| usize::try_from(n).unwrap_or(0));
    let mut actions = Vec::new();
    for (good, limit) in [
        (true, keep(cron.spec.successful_jobs_history_limit)),
        (false, keep(cron.spec.failed_jobs_history_limit)),
    ] {
        let Some(limit) = limit else { continue };
        let mut ended: Vec<_> = jobs
            .iter()
            .filter(|j| finished_at(j).is_some() && has_completed(j) == good && !j.is_deleting())
            .collect();
        ended.sort_by_key(|j| {
            (
                j.status
                    .as_ref()
                    .and_then(|s| s.start_time.as_ref().map(|t| t.0)),
                j.created_at(),
            )
        });
        let surplus = ended.len().saturating_sub(limit);
        actions.extend(ended.into_iter().take(surplus).map(|j| delete_job(cron, j)));
    }
    actions
}

fn delete_job(cron: &CronJob, job: &Job) -> Action {
    Write::delete(job)
        .notes(
            &object_reference(cron),
            ("SuccessfulDelete", "Deleted job {name}"),
            ("FailedDelete", "Deleted job: {error}"),
        )
        .into()
}

fn report_bad_schedule(cron: &CronJob, problem: &str) -> Action {
    let reason = if problem.starts_with("unknown time zone") {
        "UnknownTimeZone"
    } else {
        "UnparseableSchedule"
    };
    let text = format!("unparseable schedule: {:?} : {problem}", cron.spec.schedule);
    Action::warning(&object_reference(cron), reason, text)
}

/// Creates the Job that is due; returns the delay of the next reconcile.
fn start_due_job(
    cron: &CronJob,
    jobs: &[Arc<Job>],
    now: Timestamp,
    status: &mut CronJobStatus,
    actions: &mut Vec<Action>,
) -> Option<Duration> {
    let about = object_reference(cron);
    let schedule = match Schedule::parse(&cron.spec.schedule, cron.spec.time_zone.as_deref()) {
        Ok(schedule) => schedule,
        Err(problem) => {
            actions.push(report_bad_schedule(cron, &problem));
            return None;
        }
    };
    // A tenth of a second late: a timer that fires early would find no time due and wait for the
    // next one.
    let wait = schedule
        .next(now)
        .map(|at| time::duration_until(at, now) + Duration::from_millis(100));
    let Some((due, missed)) = most_recent(cron, &schedule, now) else {
        return wait;
    };
    if missed > MANY {
        let text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        actions.push(Action::warning(&about, "TooManyMissedTimes", text));
    }
    // An earlier reconcile has created the Job of this time.
    let last = status.last_schedule_time.as_ref();
    if last.is_some_and(|t| t.0 >= due) {
        return wait;
    }
    let deadline = cron.spec.starting_deadline_seconds;
    if deadline.is_some_and(|s| time::seconds_after(due, s) < now) {
        let text = format!("Missed scheduled time to start a job: {due}");
        actions.push(Action::warning(&about, "MissSchedule", text));
        return wait;
    }
    let running = list_active(jobs);
    match cron.spec.concurrency_policy.as_deref() {
        Some("Forbid") if !running.is_empty() => {
            let text = "Not starting job because prior execution is running and concurrency policy is Forbid";
            actions.push(Action::event(&about, "JobAlreadyActive", text));
            return wait;
        }
        // The old Jobs are deleted before the new one is created; if that fails, the key is retried
        // as a whole.
        Some("Replace") => actions.extend(running.iter().map(|j| delete_job(cron, j))),
        _ => {}
    }
    // A repeated create after a crash is harmless: the name contains the time, and "already exists"
    // is tolerated.
    actions.push(create_job(cron, due));
    status.last_schedule_time = Some(time::api_time(due));
    wait
}

/// Returns the latest time without a Job that has passed, and the number of such times.
fn most_recent(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<(Timestamp, usize)> {
    let created = cron.meta().creation_timestamp.as_ref().map_or(now, |t| t.0);
    let last = cron
        .status
        .as_ref()
        .and_then(|s| s.last_schedule_time.as_ref())
        .map(|t| t.0);
    // Times before the CronJob existed are not missed.
    let mut earliest = last.unwrap_or(created);
    // Times older than the deadline can't start any more; not counting them avoids a warning about
    // many missed times.
    if let Some(seconds) = cron.spec.starting_deadline_seconds {
        earliest = earliest.max(time::seconds_after(now, -seconds));
    }
    let first = schedule.next(earliest).filter(|at| *at <= now)?;
    let second = schedule.next(first).filter(|at| *at <= now);
    let Some(second) = second else {
        return Some((first, 1));
    };
    // Skips whole periods, so that a long pause is not counted minute by minute. The first period
    // may differ from the others: if the skip jumps over every run before `now`, upstream starts
    // none either.
    let period = (second.as_second() - first.as_second()).max(1);
    let missed = (now.as_second() - first.as_second()) / period + 1;
    let mut latest = None;
    let mut from = time::seconds_after(first, (missed - 2).max(0).saturating_mul(period));
    while let Some(at) = schedule.next(from).filter(|at| *at <= now) {
        latest = Some(at);
        from = at;
    }
    Some((latest?, usize::try_from(missed).unwrap_or(usize::MAX)))
}

fn create_job(cron: &CronJob, due: Timestamp) -> Action {
    let source = &cron.spec.job_template;
    let meta = source.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(DUE.to_owned(), format_scheduled_time(cron, due));
    let job = Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron.name(), due.as_second() / 60)),
            namespace: cron.meta().namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: source.spec.clone(),
        status: None,
    };
    let mut write = Write::new(
        Verb::Create,
        controllers_runtime::Target::of(&job),
        controllers_runtime::to_tree(&job),
    )
    .notes(
        &object_reference(cron),
        ("SuccessfulCreate", "Created job {name}"),
        ("FailedCreate", "Error creating job: {error}"),
    );
    write.tolerate.exists = true;
    write.into()
}

/// Formats the scheduled time in the CronJob's zone, as RFC 3339.
fn format_scheduled_time(cron: &CronJob, due: Timestamp) -> String {
    let zone = cron
        .spec
        .time_zone
        .as_deref()
        .and_then(|name| jiff::tz::TimeZone::get(name).ok());
    match zone.filter(|z| z.to_offset(due) != jiff::tz::Offset::UTC) {
        Some(zone) => due.display_with_offset(zone.to_offset(due)).to_string(),
        None => due.to_string(),
    }
}
