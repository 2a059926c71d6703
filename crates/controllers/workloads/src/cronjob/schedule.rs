//! Cron schedules: five fields, names, steps, macros such as `@hourly`, and `@every 1h`.

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

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

#[derive(Clone, Debug, PartialEq)]
struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// Either day field is a star: then both must match, else one is enough.
    starred: bool,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Years after which the search for the next time stops.
const YEARS: i16 = 5;

impl Schedule {
    /// Parses a schedule; the zone defaults to UTC. The error describes the problem.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = match zone {
            Some(name) => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}"))?,
            None => TimeZone::UTC,
        };
        Ok(Self {
            when: parse(text.trim())?,
            zone,
        })
    }

    /// Returns the first time after `after`; None if there is none within `YEARS`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Every(seconds) => Timestamp::from_second(after.as_second() + seconds).ok(),
            When::Fields(fields) => self.next_of(fields, after),
        }
    }

    fn next_of(&self, fields: &Fields, after: Timestamp) -> Option<Timestamp> {
        let start = self.zone.to_datetime(after);
        let mut at = floor_minute(start)?.checked_add(1.minute()).ok()?;
        let last = start.year().checked_add(YEARS)?;
        loop {
            if at.year() > last {
                return None;
            }
            match fields.step(at)? {
                Some(later) => at = later,
                None => {
                    let found = self.zone.to_ambiguous_timestamp(at).compatible().ok()?;
                    if found > after {
                        return Some(found);
                    }
                    at = at.checked_add(1.minute()).ok()?;
                }
            }
        }
    }
}

fn floor_minute(at: DateTime) -> Option<DateTime> {
    at.with().second(0).subsec_nanosecond(0).build().ok()
}

impl Fields {
    /// Returns None if the time matches, else the next candidate.
    fn step(&self, at: DateTime) -> Option<Option<DateTime>> {
        let has = |set: u64, n: i8| set & (1 << u32::from(n.unsigned_abs())) != 0;
        if !has(self.month, at.month()) {
            let (year, month) = if at.month() == 12 {
                (at.year() + 1, 1)
            } else {
                (at.year(), at.month() + 1)
            };
            return Some(Some(date(year, month, 1).at(0, 0, 0, 0)));
        }
        let by_day = has(self.day, at.day());
        let by_weekday = has(self.weekday, at.weekday().to_sunday_zero_offset());
        let fits = if self.starred {
            by_day && by_weekday
        } else {
            by_day || by_weekday
        };
        if !fits {
            return Some(Some(midnight(at)?.checked_add(Span::new().days(1)).ok()?));
        }
        if !has(self.hour, at.hour()) {
            let hour = at.with().minute(0).build().ok()?;
            return Some(Some(hour.checked_add(1.hour()).ok()?));
        }
        if !has(self.minute, at.minute()) {
            return Some(Some(at.checked_add(1.minute()).ok()?));
        }
        Some(None)
    }
}

fn midnight(at: DateTime) -> Option<DateTime> {
    at.with().hour(0).minute(0).build().ok()
}

fn parse(text: &str) -> Result<When, String> {
    if let Some(name) = text.strip_prefix('@') {
        let fields = match name {
            "yearly" | "annually" => "0 0 1 1 *",
            "monthly" => "0 0 1 * *",
            "weekly" => "0 0 * * 0",
            "daily" | "midnight" => "0 0 * * *",
            "hourly" => "0 * * * *",
            other => return every(other),
        };
        return parse(fields);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts.as_slice() else {
        return Err(format!(
            "expected exactly 5 fields, found {}: {text}",
            parts.len()
        ));
    };
    let star = |s: &str| s.starts_with('*') || s.starts_with('?');
    Ok(When::Fields(Box::new(Fields {
        minute: field(minute, 0, 59, &[])?,
        hour: field(hour, 0, 23, &[])?,
        day: field(day, 1, 31, &[])?,
        month: field(month, 1, 12, &MONTHS)?,
        weekday: sundays(field(weekday, 0, 7, &DAYS)?),
        starred: star(day) || star(weekday),
    })))
}

/// Maps day 7 to Sunday (0).
fn sundays(set: u64) -> u64 {
    if set & (1 << 7) != 0 {
        (set | 1) & !(1 << 7)
    } else {
        set
    }
}

fn every(text: &str) -> Result<When, String> {
    let bad = || format!("unrecognized descriptor: @{text}");
    let span: jiff::SignedDuration = text
        .strip_prefix("every ")
        .ok_or_else(bad)?
        .trim()
        .parse()
        .map_err(|_| bad())?;
    Ok(When::Every(span.as_secs().max(1)))
}

/// Parses one field into a bit set.
fn field(text: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    text.split(',')
        .try_fold(0, |set, part| Ok(set | part_bits(part, low, high, names)?))
}

fn part_bits(part: &str, low: u32, high: u32, names: &[&str]) -> Result<u64, String> {
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (
            range,
            Some(
                step.parse::<u32>()
                    .map_err(|_| format!("bad step: {part}"))?,
            ),
        ),
        None => (part, None),
    };
    let value = |text: &str| -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        let named = names
            .iter()
            .position(|n| *n == lower)
            .and_then(|i| u32::try_from(i).ok());
        match named {
            Some(index) => Ok(index + low),
            None => text
                .parse()
                .map_err(|_| format!("failed to parse int from {text}")),
        }
    };
    let top = if high == 7 { 6 } else { high };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" || range == "?" => (low, top),
        Some((from, to)) => (value(from)?, value(to)?),
        None if step.is_some() => (value(range)?, top),
        None => (value(range)?, value(range)?),
    };
    if from < low || to > high || from > to {
        return Err(format!("{part} is not within {low} and {high}"));
    }
    match step {
        Some(0) => Err(format!("step of range should be a positive number: {part}")),
        step => {
            let step = usize::try_from(step.unwrap_or(1)).unwrap_or(1);
            Ok((from..=to).step_by(step).fold(0, |set, n| set | (1 << n)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn next_times() {
        for (text, zone, after, expect) in [
            (
                "* * * * *",
                None,
                "2026-01-01T00:00:30Z",
                "2026-01-01T00:01:00Z",
            ),
            (
                "*/15 * * * *",
                None,
                "2026-01-01T00:46:00Z",
                "2026-01-01T01:00:00Z",
            ),
            (
                "0 9 * * mon-fri",
                None,
                "2026-01-02T10:00:00Z",
                "2026-01-05T09:00:00Z",
            ),
            (
                "0 0 29 2 *",
                None,
                "2026-01-01T00:00:00Z",
                "2028-02-29T00:00:00Z",
            ),
            (
                "0 0 1,15 * 3",
                None,
                "2026-01-02T00:00:00Z",
                "2026-01-07T00:00:00Z",
            ),
            (
                "30 4 1 jan ?",
                None,
                "2026-02-01T00:00:00Z",
                "2027-01-01T04:30:00Z",
            ),
            (
                "@hourly",
                None,
                "2026-01-01T00:00:00Z",
                "2026-01-01T01:00:00Z",
            ),
            (
                "@every 90s",
                None,
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:01:30Z",
            ),
            (
                "0 0 * * 7",
                None,
                "2026-01-01T00:00:00Z",
                "2026-01-04T00:00:00Z",
            ),
        ] {
            let schedule = Schedule::parse(text, zone).unwrap();
            assert_eq!(
                schedule.next(after.parse().unwrap()).unwrap().to_string(),
                expect,
                "{text}"
            );
        }
        assert_eq!(
            Schedule::parse("0 0 31 2 *", None)
                .unwrap()
                .next(Timestamp::UNIX_EPOCH),
            None
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "* * * *",
            "61 * * * *",
            "* * * * * *",
            "*/0 * * * *",
            "a * * * *",
            "@fortnightly",
            "5-1 * * * *",
        ] {
            assert!(Schedule::parse(text, None).is_err(), "{text}");
        }
        assert!(Schedule::parse("* * * * *", Some("Mars/Olympus")).is_err());
    }
}
