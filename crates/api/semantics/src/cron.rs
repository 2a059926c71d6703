//! Cron schedules as upstream's parser (robfig/cron v3, `ParseStandard`) reads them: five fields,
//! names, steps, macros such as `@hourly`, and `@every 1h`.
//!
//! Around a change of the clocks a schedule means what it does upstream: a time that is skipped has
//! no run on that day, and a time that occurs twice has two.

use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

/// A schedule in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    when: When,
    zone: TimeZone,
}

#[derive(Clone, Debug, PartialEq)]
enum When {
    /// A fixed interval in seconds.
    Every(i64),
    Fields(Box<Fields>),
}

/// Bit sets of numbers. [`STAR`] marks a field without restriction.
#[derive(Clone, Debug, PartialEq)]
struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

// The largest number is minute 59, so bit 63 is free.
const STAR: u64 = 1 << 63;
/// Years after which the search for the next time stops.
const YEARS: i16 = 5;

/// Limits and names of a field; a name stands for its index plus the minimum.
struct Bounds {
    min: i64,
    max: i64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = field_bounds(0, 59, &[]);
const HOURS: Bounds = field_bounds(0, 23, &[]);
const DAYS: Bounds = field_bounds(1, 31, &[]);
const MONTHS: Bounds = field_bounds(
    1,
    12,
    &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
);
// Sunday is 0 only. Upstream's parser rejects 7, unlike that of Vixie cron.
const WEEKDAYS: Bounds = field_bounds(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

const fn field_bounds(min: i64, max: i64, names: &'static [&'static str]) -> Bounds {
    Bounds { min, max, names }
}

impl Schedule {
    /// Parses a schedule; the zone defaults to UTC. The error is upstream's message.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = match zone {
            Some(name) => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}"))?,
            None => TimeZone::UTC,
        };
        Ok(Self {
            when: parse(text)?,
            zone,
        })
    }

    /// Returns the first time after `after`; None if there is none within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            // `@every` counts from the last run and knows no clock, so time zones do not matter.
            When::Every(seconds) => {
                Timestamp::from_second(after.as_second().checked_add(*seconds)?).ok()
            }
            When::Fields(fields) => fields.next(after, &self.zone),
        }
    }
}

impl Fields {
    /// Goes through months, days, hours and minutes to the first match. A wrap to the start of a
    /// larger unit checks the larger units again.
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        // The search starts at the next whole minute: a schedule never returns the time that it was
        // asked for.
        let minute = after.as_second().div_euclid(60) + 1;
        let start = Timestamp::from_second(minute.checked_mul(60)?).ok()?;
        let mut at = start.to_zoned(zone.clone());
        let last = at.year().checked_add(YEARS)?;
        // Smaller units are reset by the first step of a larger one.
        let mut is_reset = false;
        'wrap: loop {
            // 29 February needs up to eight years around 1900 and 2100. Upstream stops after five,
            // and so does this search.
            if at.year() > last {
                return None;
            }
            while !has_bit(self.month, at.month()) {
                // The first step of the month starts at its beginning; later ones are at the
                // beginning already.
                if !std::mem::replace(&mut is_reset, true) {
                    let first = date(at.year(), at.month(), 1).at(0, 0, 0, 0);
                    at = first.to_zoned(zone.clone()).ok()?;
                }
                at = at.checked_add(1.month()).ok()?;
                // A new year: it may be beyond the limit.
                if at.month() == 1 {
                    continue 'wrap;
                }
            }
            while !self.day_matches(&at) {
                if !std::mem::replace(&mut is_reset, true) {
                    at = at.start_of_day().ok()?;
                }
                // A day has 23 or 25 hours when the clocks change, so a step of 24 hours would miss
                // midnight.
                at = next_midnight(&at)?;
                if at.day() == 1 {
                    continue 'wrap;
                }
            }
            while !has_bit(self.hour, at.hour()) {
                if !std::mem::replace(&mut is_reset, true) {
                    // In absolute time: the hour may occur twice on this day.
                    at = at.checked_sub(i64::from(at.minute()).minutes()).ok()?;
                }
                at = at.checked_add(1.hour()).ok()?;
                if at.hour() == 0 {
                    continue 'wrap;
                }
            }
            while !has_bit(self.minute, at.minute()) {
                is_reset = true;
                at = at.checked_add(1.minute()).ok()?;
                if at.minute() == 0 {
                    continue 'wrap;
                }
            }
            return Some(at.timestamp());
        }
    }

    /// If either day field is a star, both must match, else one is enough.
    fn day_matches(&self, at: &Zoned) -> bool {
        let day = has_bit(self.day, at.day());
        let weekday = has_bit(self.weekday, at.weekday().to_sunday_zero_offset());
        // The rule of Vixie cron: two restricted fields are alternatives.
        if self.day & STAR != 0 || self.weekday & STAR != 0 {
            day && weekday
        } else {
            day || weekday
        }
    }
}

fn has_bit(set: u64, number: i8) -> bool {
    set & (1 << u32::from(number.unsigned_abs())) != 0
}

/// Returns the next day's midnight, or the closest whole hour if the clocks change at midnight.
fn next_midnight(at: &Zoned) -> Option<Zoned> {
    let next = at.checked_add(1.day()).ok()?;
    let hour = i64::from(next.hour());
    match hour {
        0 => Some(next),
        1..=12 => next.checked_sub(hour.hours()).ok(),
        _ => next.checked_add((24 - hour).hours()).ok(),
    }
}

fn parse(text: &str) -> Result<When, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if text.starts_with('@') {
        return parse_descriptor(text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts.as_slice() else {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            parts.len(),
            parts.join(" ")
        ));
    };
    Ok(When::Fields(Box::new(Fields {
        minute: parse_field(minute, &MINUTES)?,
        hour: parse_field(hour, &HOURS)?,
        day: parse_field(day, &DAYS)?,
        month: parse_field(month, &MONTHS)?,
        weekday: parse_field(weekday, &WEEKDAYS)?,
    })))
}

fn parse_descriptor(text: &str) -> Result<When, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(interval) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let nanos = base_duration::parse_duration(interval)
                .map_err(|error| format!("failed to parse duration {text}: {error}"))?;
            // robfig/cron raises intervals below a second to one. Zero would never advance.
            return Ok(When::Every((nanos / 1_000_000_000).max(1)));
        }
    };
    parse(fields)
}

/// Parses one field into a bit set. Empty parts of the list are ignored.
fn parse_field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    parts.try_fold(0, |set, part| Ok(set | parse_range(part, bounds)?))
}

fn parse_range(part: &str, bounds: &Bounds) -> Result<u64, String> {
    let (range, step) = part
        .split_once('/')
        .map_or((part, None), |(range, step)| (range, Some(step)));
    let (low, high) = range
        .split_once('-')
        .map_or((range, None), |(low, high)| (low, Some(high)));
    // Upstream's parser accepts `?` in every field, with the meaning of a star.
    let (mut star, start, mut end) = if low == "*" || low == "?" {
        (STAR, bounds.min, bounds.max)
    } else {
        let start = number_or_name(low, bounds)?;
        let end = match high {
            Some(high) if high.contains('-') => return Err(format!("too many hyphens: {part}")),
            Some(high) => number_or_name(high, bounds)?,
            None => start,
        };
        (0, start, end)
    };
    let step = match step {
        None => 1,
        Some(step) if step.contains('/') => return Err(format!("too many slashes: {part}")),
        Some(step) => {
            // `N/step` means from N to the maximum.
            if high.is_none() {
                end = bounds.max;
            }
            parse_number(step)?
        }
    };
    // `*/2` restricts the field, although it begins with a star.
    if step > 1 {
        star = 0;
    }
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!(
            "beginning of range ({start}) below minimum ({min}): {part}"
        ));
    }
    if end > max {
        return Err(format!(
            "end of range ({end}) above maximum ({max}): {part}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    let step = usize::try_from(step).unwrap_or_default();
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok((start..=end)
        .step_by(step)
        .fold(star, |set, n| set | 1 << n))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<i64, String> {
    let mut names = bounds.names.iter().zip(bounds.min..);
    match names.find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((_, index)) => Ok(index),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<i64, String> {
    let number: i64 = text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })?;
    if number < 0 {
        return Err(format!("negative number ({number}) not allowed: {text}"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::Value;

    #[test]
    fn schedules_follow_the_table() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::CRON).unwrap();
        for case in cases {
            let parsed = Schedule::parse(case["schedule"].as_str().unwrap(), case["zone"].as_str());
            if let Some(error) = case["error"].as_str() {
                assert_eq!(
                    parsed.as_ref().map_err(String::as_str),
                    Err(error),
                    "{case}"
                );
                continue;
            }
            let schedule = parsed.unwrap_or_else(|error| panic!("{case}: {error}"));
            let mut at: Timestamp = case["after"].as_str().unwrap().parse().unwrap();
            for expected in case["next"].as_array().unwrap() {
                let next = schedule.next(at);
                let shown = next.map(|next| next.to_string());
                assert_eq!(shown.as_deref(), expected.as_str(), "{case}");
                at = next.unwrap_or(at);
            }
        }
    }

    #[test]
    fn unknown_zone_is_an_error() {
        assert!(Schedule::parse("* * * * *", Some("Mars/Olympus")).is_err());
    }
}
