//! Schedules and time zones.

use crate::field::{Errors, Path};
use crate::tree::{opt_text, text};
use serde_json::Value;

const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Validates `schedule` and `timeZone`.
pub fn schedule(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let schedule = text(spec, "schedule");
    let at = path.child("schedule");
    let inside = schedule.contains("TZ");
    if schedule.is_empty() {
        errors.required(&at, "");
    } else if inside {
        errors.invalid(
            &at,
            schedule,
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        );
    } else if let Err(why) = parse(schedule) {
        errors.invalid(&at, schedule, why);
    }
    let Some(zone) = opt_text(spec, "timeZone") else {
        return;
    };
    let at = path.child("timeZone");
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

/// Checks that a text is a standard schedule. Returns the reason if it is not.
fn parse(text: &str) -> Result<(), String> {
    if text.starts_with('@') {
        let every = text
            .strip_prefix("@every ")
            .is_some_and(|d| d.starts_with(|c: char| c.is_ascii_digit()));
        return if every || DESCRIPTORS.contains(&text) {
            Ok(())
        } else {
            Err(format!("unrecognized descriptor: {text}"))
        };
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    };
    field(minute, 0, 59, &[])?;
    field(hour, 0, 23, &[])?;
    field(day, 1, 31, &[])?;
    field(month, 1, 12, &MONTHS)?;
    field(weekday, 0, 6, &DAYS)
}

fn field(text: &str, low: u32, high: u32, names: &[&str]) -> Result<(), String> {
    text.split(',')
        .try_for_each(|part| range(part, low, high, names))
}

fn range(part: &str, low: u32, high: u32, names: &[&str]) -> Result<(), String> {
    let (bounds, step) = part
        .split_once('/')
        .map_or((part, None), |(b, s)| (b, Some(s)));
    if let Some(step) = step {
        let n: u32 = step
            .parse()
            .map_err(|_| format!("failed to parse int from {step}"))?;
        if n == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
    }
    if bounds == "*" || bounds == "?" {
        return Ok(());
    }
    let number = |text: &str| -> Result<u32, String> {
        if let Some(i) = names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
            return Ok(u32::try_from(i).unwrap_or(0) + low);
        }
        text.parse().map_err(|_| {
            format!(
                "failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax"
            )
        })
    };
    let (start, end) = match bounds.split_once('-') {
        Some((start, end)) => (number(start)?, number(end)?),
        None => (number(bounds)?, number(bounds)?),
    };
    if start < low {
        return Err(format!(
            "beginning of range ({start}) below minimum ({low}): {part}"
        ));
    }
    if end > high {
        return Err(format!(
            "end of range ({end}) above maximum ({high}): {part}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn schedules() {
        for good in [
            "* * * * *",
            "0 0 31 2 *",
            "*/5 1-3 1,15 jan-mar MON",
            "@hourly",
            "@every 1h",
            "? ? ? ? ?",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        for bad in [
            "every day",
            "60 * * * *",
            "* * * *",
            "* * 0 * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "@never",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
