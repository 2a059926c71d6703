//! Schedules and time zones.

use crate::field::{Errors, Path};
use api_meta::tree::{opt_text, text};
use api_semantics::cron::Schedule;
use serde_json::Value;

/// Validates `schedule` and `timeZone`.
pub fn validate_schedule(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let schedule = text(spec, "schedule");
    let at = path.child("schedule");
    // Upstream's parser reads a zone in the schedule, which would contradict `timeZone`.
    let inside = schedule.contains("TZ");
    if schedule.is_empty() {
        errors.required(&at, "");
    } else if inside {
        errors.invalid(
            &at,
            schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    } else if let Err(why) = Schedule::parse(schedule, None) {
        errors.invalid(&at, schedule, why);
    }
    let Some(zone) = opt_text(spec, "timeZone") else {
        return;
    };
    let at = path.child("timeZone");
    // Go reads an empty name as UTC and `local` as the zone of the controller's host, which the
    // user does not know.
    if zone.is_empty() {
        errors.invalid(&at, zone, "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("local") {
        errors.invalid(
            &at,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    } else if jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(&at, zone, format!("unknown time zone {zone}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::field::Path;

    #[test]
    fn schedules_follow_the_table_of_the_rule() {
        let cases: Vec<Value> = serde_json::from_str(api_semantics::cases::CRON).unwrap();
        for case in cases {
            let mut errors = Errors(Vec::new());
            validate_schedule(&case, &Path::ROOT, &mut errors);
            let is_valid = errors.0.is_empty();
            assert_eq!(is_valid, case.get("error").is_none(), "{case}");
        }
    }
}
