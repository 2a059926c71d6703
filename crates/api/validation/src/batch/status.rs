//! Statuses of jobs, which controllers other than upstream's may write (KEP-4368): a job that has
//! ended stays so.
//!
//! Most rules apply only to fields that have changed, so that a status which was wrong before can
//! still be corrected in steps.

use super::indexes::{count_indexes, find_common_index};
use super::policies::reject_unshown;
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::time::parse;
use api_meta::tree::{equal, flag, get, has, int, list, opt_text, same, text};
use serde_json::Value;
use std::collections::BTreeSet;

const UNCOUNTED: &str = "uncountedTerminatedPods";

/// A job with the facts that the rules ask for.
struct Job<'a> {
    spec: &'a Value,
    status: &'a Value,
}

impl<'a> Job<'a> {
    fn new(object: &'a Value) -> Self {
        Job {
            spec: get(object, "spec"),
            status: get(object, "status"),
        }
    }

    fn has_condition(&self, kind: &str, status: &str) -> bool {
        list(self.status, "conditions")
            .iter()
            .any(|c| text(c, "type") == kind && text(c, "status") == status)
    }

    fn is(&self, kind: &str) -> bool {
        self.has_condition(kind, "True")
    }

    fn is_finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn is_indexed(&self) -> bool {
        text(self.spec, "completionMode") == "Indexed"
    }

    fn count(&self, field: &str) -> i64 {
        int(self.status, field).unwrap_or(0)
    }
}

/// The job before and after the write.
struct Change<'a> {
    new: Job<'a>,
    old: Job<'a>,
}

impl Change<'_> {
    fn is_changed(&self, field: &str) -> bool {
        !same(self.new.status, self.old.status, field)
    }

    fn is_condition_changed(&self, kind: &str) -> bool {
        self.new.is(kind) != self.old.is(kind)
    }

    fn is_end_changed(&self) -> bool {
        self.new.is_finished() != self.old.is_finished()
    }
}

/// Validates a write to `jobs/status`.
pub(super) fn validate_job_status(new: &Value, old: &Value, errors: &mut Errors) {
    let change = Change {
        new: Job::new(new),
        old: Job::new(old),
    };
    let path = Path::ROOT.child("status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        rules::validate_non_negative(change.new.status, field, &path, errors);
    }
    validate_uncounted_pods(change.new.status, &path.child(UNCOUNTED), errors);
    validate_end(&change, &path, errors);
    validate_finished_job(&change, &path, errors);
    validate_indexes(&change, &path, errors);
    validate_counts(&change, &path, errors);
    validate_success(&change, &path.child("conditions"), errors);
    validate_transition(&change, &path, errors);
}

fn validate_uncounted_pods(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    // One set for both fields: a pod that is in both would be counted twice when its finalizer is
    // removed.
    let mut seen = BTreeSet::new();
    for field in ["succeeded", "failed"] {
        let at = path.child(field);
        for (i, uid) in list(get(status, UNCOUNTED), field).iter().enumerate() {
            let uid = uid.as_str().unwrap_or_default();
            if uid.is_empty() {
                errors.invalid(&at.index(i), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&at.index(i), uid);
            }
        }
    }
}

/// Validates the conditions of the end and the times that belong to them.
fn validate_end(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (job, conditions) = (&change.new, path.child("conditions"));
    let is_complete = job.is("Complete");
    let complete_changed = change.is_condition_changed("Complete");
    let failed_changed = change.is_condition_changed("Failed");
    // Clients wait for either condition. With both, two clients would come to different
    // conclusions.
    if (complete_changed || failed_changed) && is_complete && job.is("Failed") {
        let detail = "cannot set Complete=True and Failed=true conditions";
        reject_unshown(&conditions, detail, errors);
    }
    let target_changed = change.is_condition_changed("FailureTarget");
    if (complete_changed || target_changed) && is_complete && job.is("FailureTarget") {
        let detail = "cannot set Complete=True and FailureTarget=true conditions";
        reject_unshown(&conditions, detail, errors);
    }
    let at = path.child("completionTime");
    let (start, end) = (
        opt_text(job.status, "startTime"),
        opt_text(job.status, "completionTime"),
    );
    let end_changed = change.is_changed("completionTime");
    if complete_changed || end_changed {
        match end {
            Some(end) if !is_complete => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&at, end, detail);
            }
            None if is_complete => {
                errors.required(&at, "completionTime is required for Complete jobs");
            }
            _ => {}
        }
    }
    if (end_changed || change.is_changed("startTime"))
        && let (Some(start), Some(end)) = (start, end)
        && parse(end) < parse(start)
    {
        errors.invalid(&at, end, "must be equal to or after `startTime`");
    }
    // Both announce the end: the pods are being terminated, and no new ones are created.
    if (failed_changed || change.is_changed("failedIndexes"))
        && job.is("Failed")
        && !job.is("FailureTarget")
    {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        reject_unshown(&conditions, detail, errors);
    }
    if (complete_changed || change.is_condition_changed("SuccessCriteriaMet"))
        && is_complete
        && !job.is("SuccessCriteriaMet")
    {
        let detail =
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        reject_unshown(&conditions, detail, errors);
    }
}

/// Checks that a finished job has no pods left.
fn validate_finished_job(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let job = &change.new;
    if !job.is_finished() {
        return;
    }
    let is_due = |field| change.is_end_changed() || change.is_changed(field);
    if is_due("active") && job.count("active") > 0 {
        let detail = "active>0 is invalid for finished job";
        errors.invalid(&path.child("active"), job.count("active"), detail);
    }
    // A suspended job without work completes at once, before it has a start time.
    let is_unstarted = flag(job.spec, "suspend") && int(job.spec, "completions") == Some(0);
    if is_due("startTime") && !is_unstarted && !has(job.status, "startTime") {
        let detail = "startTime is required for finished job";
        errors.required(&path.child("startTime"), detail);
    }
    // Uncounted pods hold the job's finalizer. After the end no controller would remove it, so the
    // pods would stay.
    let uncounted = get(job.status, UNCOUNTED);
    if is_due(UNCOUNTED) && !equal(uncounted, &Value::Null) {
        let detail = "must be empty for finished job";
        errors.invalid(&path.child(UNCOUNTED), uncounted.clone(), detail);
    }
}

fn validate_indexes(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let job = &change.new;
    let completed = text(job.status, "completedIndexes");
    let failed = opt_text(job.status, "failedIndexes");
    let (completed_at, failed_at) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let completed_changed = change.is_changed("completedIndexes");
    let failed_changed = change.is_changed("failedIndexes");
    let (completions, has_limit) = (
        int(job.spec, "completions"),
        has(job.spec, "backoffLimitPerIndex"),
    );
    // The lists are parsed again on each write that changes them, because a foreign controller may
    // have written them.
    if let (true, Some(count)) = (completed_changed, completions)
        && let Err(why) = count_indexes(completed, count)
    {
        let detail = format!("error parsing completedIndexes: {why}");
        errors.invalid(&completed_at, completed, detail);
    }
    if let (true, Some(count), true, Some(failed)) =
        (failed_changed, completions, has_limit, failed)
        && let Err(why) = count_indexes(failed, count)
    {
        errors.invalid(
            &failed_at,
            failed,
            format!("error parsing failedIndexes: {why}"),
        );
    }
    if completed_changed && !completed.is_empty() && !job.is_indexed() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&completed_at, completed, detail);
    }
    // An empty text differs from none: it states that the job counts failures by index.
    let Some(failed) = failed else {
        return;
    };
    if failed_changed && !has_limit {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_at, failed, detail);
    }
    if let (true, Some(count)) = (failed_changed || completed_changed, completions)
        && let Some(index) = find_common_index(completed, failed, count)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&failed_at, failed, detail);
    }
}

fn validate_counts(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let job = &change.new;
    let is_due = change.is_end_changed() || change.is_changed("terminating");
    if is_due && job.is_finished() && job.count("terminating") > 0 {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(&path.child("terminating"), job.count("terminating"), detail);
    }
    let is_due = change.is_changed("ready") || change.is_changed("active");
    // Ready pods are counted among the active ones.
    if is_due && job.count("ready") > job.count("active") {
        let detail = "cannot set more ready pods than active";
        errors.invalid(&path.child("ready"), job.count("ready"), detail);
    }
}

fn validate_success(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let job = &change.new;
    let is_met = job.is("SuccessCriteriaMet");
    for other in ["Failed", "FailureTarget"] {
        if is_met && job.is(other) {
            let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
            reject_unshown(path, detail, errors);
        }
    }
    if has(job.spec, "successPolicy") && !is_met && job.is("Complete") {
        let detail =
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        reject_unshown(path, detail, errors);
    }
}

/// Checks the fields that a later status may not revert.
fn validate_transition(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (new, old, conditions) = (&change.new, &change.old, path.child("conditions"));
    // Clients that have seen the end may have acted on it, for instance deleted the job's input.
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if old.is(kind) && !new.is(kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            reject_unshown(&conditions, detail, errors);
        }
    }
    // An elastic job becomes smaller, and its completed indexes above the new end are forgotten.
    let is_elastic = new.is_indexed() && same_counts(new.spec);
    for (field, is_counter) in [("failed", true), ("succeeded", !is_elastic)] {
        if is_counter && new.count(field) < old.count(field) {
            let detail = format!("cannot decrease the {field} counter");
            errors.invalid(&path.child(field), new.count(field), detail);
        }
    }
    let end = opt_text(new.status, "completionTime");
    if let Some(end) = end
        && has(old.status, "completionTime")
        && change.is_changed("completionTime")
    {
        errors.invalid(&path.child("completionTime"), end, rules::IMMUTABLE);
    }
    // A resumed job starts again, so that its deadline counts from then on.
    let is_resuming =
        old.has_condition("Suspended", "True") && new.has_condition("Suspended", "False");
    if change.is_changed("startTime")
        && !is_resuming
        && has(old.status, "startTime")
        && !flag(new.spec, "suspend")
    {
        let shown = get(new.status, "startTime").clone();
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&path.child("startTime"), shown, detail);
    }
    if old.is("SuccessCriteriaMet") && !new.is("SuccessCriteriaMet") {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        reject_unshown(&conditions, detail, errors);
    }
    // The condition announces the end, so it can't follow it.
    if old.is("Complete") && !old.is("SuccessCriteriaMet") && new.is("SuccessCriteriaMet") {
        let detail =
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        reject_unshown(&conditions, detail, errors);
    }
}

fn same_counts(spec: &Value) -> bool {
    get(spec, "completions") == get(spec, "parallelism")
}
