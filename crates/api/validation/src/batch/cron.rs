//! CronJobs.

use super::job::validate_job_fields;
use crate::field::{Errors, Path};
use crate::pod::{self, PodOptions};
use crate::rules;
use api_meta::tree::{flag, get, has, opt_text, same, text};
use api_semantics::cron::Schedule;
use serde_json::Value;

// The controller appends a dash and 10 digits (minutes since 1970) to the name, and a job's name
// has at most 63 bytes.
const LONGEST_NAME: usize = 52;
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];

pub(super) fn validate_new_cron_job(object: &Value, errors: &mut Errors) {
    validate_spec(get(object, "spec"), None, &PodOptions::default(), errors);
    // Only new objects are checked: an old one with a longer name must still accept other updates.
    let name = text(get(object, "metadata"), "name");
    if name.len() > LONGEST_NAME {
        let at = Path::ROOT.child("metadata");
        errors.invalid(
            &at.child("name"),
            name,
            "must be no more than 52 characters",
        );
    }
}

pub(super) fn validate_cron_job_update(new: &Value, old: &Value, errors: &mut Errors) {
    let old = get(old, "spec");
    let template = get(get(get(old, "jobTemplate"), "spec"), "template");
    let options = pod::read_template_options(template);
    validate_spec(get(new, "spec"), Some(old), &options, errors);
}

fn validate_spec(spec: &Value, old: Option<&Value>, options: &PodOptions, errors: &mut Errors) {
    let path = Path::ROOT.child("spec");
    validate_schedule(spec, old, &path.child("schedule"), errors);
    rules::validate_non_negative(spec, "startingDeadlineSeconds", &path, errors);
    if old.is_none_or(|old| !same(spec, old, "timeZone")) {
        validate_time_zone(spec, &path.child("timeZone"), errors);
    }
    rules::validate_required_one_of(spec, "concurrencyPolicy", &POLICIES, &path, errors);
    let at = path.child("jobTemplate");
    let (job, at) = (get(get(spec, "jobTemplate"), "spec"), at.child("spec"));
    validate_job_fields(job, options, &at, errors);
    // Each run needs a selector of its own. A fixed one would make runs adopt each other's pods.
    if has(job, "selector") {
        let shown = get(job, "selector").clone();
        errors.invalid(
            &at.child("selector"),
            shown,
            "`selector` will be auto-generated",
        );
    }
    if flag(job, "manualSelector") {
        errors.not_supported(&at.child("manualSelector"), true, &["nil", "false"]);
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        rules::validate_non_negative(spec, field, &path, errors);
    }
}

/// Validates `schedule`. A zone in it, which upstream's parser reads, contradicts `timeZone`; an
/// object that had one may keep it.
fn validate_schedule(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.required(path, "");
        return;
    }
    let has_zone = schedule.contains("TZ");
    // The parser below does not read zones, and reads the rest without it.
    let bare = match schedule.split_once(' ') {
        Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => {
            rest.trim()
        }
        _ => schedule,
    };
    // A stored schedule is parsed as well: the controller could never run it.
    if let Err(why) = Schedule::parse(bare, None) {
        errors.invalid(path, schedule, why);
    }
    let is_tolerated = old.is_some_and(|old| text(old, "schedule").contains("TZ"));
    if has_zone && !is_tolerated {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path, schedule, detail);
    } else if has_zone && has(spec, "timeZone") {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(path, schedule, detail);
    }
}

fn validate_time_zone(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Called for a changed zone only: the zone database of an earlier release may have had a name
    // that this one lacks.
    let Some(zone) = opt_text(spec, "timeZone") else {
        return;
    };
    // Go reads the empty name as UTC, which an author who clears the field would not expect.
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
        return;
    }
    // The name is a path below the zone database of the controller's host.
    let is_part = |part: &str| {
        let is_known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(is_known)
    };
    if !zone.split('/').all(is_part) {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
        return;
    }
    // Go reads `local` as the zone of the controller's host, which the user does not know.
    if zone.eq_ignore_ascii_case("local") {
        let detail =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
    }
    let is_found = zone.eq_ignore_ascii_case("local") || jiff::tz::TimeZone::get(zone).is_ok();
    if !is_found {
        errors.invalid(path, zone, format!("unknown time zone {zone}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn schedules_follow_the_table_of_the_rule() {
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::CRON).unwrap();
        for case in cases {
            let mut errors = Errors(Vec::new());
            validate_schedule(&case, None, &Path::ROOT, &mut errors);
            validate_time_zone(&case, &Path::ROOT, &mut errors);
            let is_valid = errors.0.is_empty();
            assert_eq!(is_valid, case.get("error").is_none(), "{case}");
        }
    }
}
