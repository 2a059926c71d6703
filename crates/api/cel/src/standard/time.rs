//! Parts of times and durations.

use std::sync::LazyLock;

use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::error::EvalError;
use crate::function::{Function, Overload};
use crate::types::Type;
use crate::value::Value;

type Eval<'v> = Result<Value<'v>, EvalError>;

/// The time zones that are part of the program, so that no evaluation reads a file.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

macro_rules! accessor {
    ($name:literal, $id:literal, $zoned:expr) => {
        Function::new(
            $name,
            vec![
                Overload::receiver($id, vec![Type::Timestamp], Type::Int, |arguments| {
                    read_time(arguments, $zoned)
                }),
                Overload::receiver(
                    concat!($id, "_with_tz"),
                    vec![Type::Timestamp, Type::String],
                    Type::Int,
                    |arguments| read_time(arguments, $zoned),
                ),
            ],
        )
    };
}

macro_rules! shared_accessor {
    ($name:literal, $id:literal, $duration_id:literal, $zoned:expr, $duration:expr) => {{
        let mut function = accessor!($name, $id, $zoned);
        function.overloads.push(Overload::receiver(
            $duration_id,
            vec![Type::Duration],
            Type::Int,
            |arguments| read_duration(arguments, $duration),
        ));
        function
    }};
}

/// Declares the functions.
pub fn functions() -> Vec<Function> {
    vec![
        accessor!("getFullYear", "timestamp_to_year", |time| time
            .year()
            .into()),
        // As the language defines, months and days count from 0, except in `getDate`.
        accessor!("getMonth", "timestamp_to_month", |time| i64::from(
            time.month()
        ) - 1),
        accessor!("getDayOfYear", "timestamp_to_day_of_year", |time| {
            i64::from(time.day_of_year()) - 1
        }),
        accessor!(
            "getDayOfMonth",
            "timestamp_to_day_of_month",
            |time| i64::from(time.day()) - 1
        ),
        accessor!("getDate", "timestamp_to_day_of_month_1_based", |time| time
            .day()
            .into()),
        // The week starts with Sunday as 0, as in Go.
        accessor!("getDayOfWeek", "timestamp_to_day_of_week", |time| {
            time.weekday().to_sunday_zero_offset().into()
        }),
        // Of a duration, these return the whole length in the unit, not a part of it.
        shared_accessor!(
            "getHours",
            "timestamp_to_hours",
            "duration_to_hours",
            |time| time.hour().into(),
            |length| length.as_hours()
        ),
        shared_accessor!(
            "getMinutes",
            "timestamp_to_minutes",
            "duration_to_minutes",
            |time| time.minute().into(),
            |length| length.as_mins()
        ),
        shared_accessor!(
            "getSeconds",
            "timestamp_to_seconds",
            "duration_to_seconds",
            |time| time.second().into(),
            |length| length.as_secs()
        ),
        shared_accessor!(
            "getMilliseconds",
            "timestamp_to_milliseconds",
            "duration_to_milliseconds",
            |time| time.millisecond().into(),
            |length| i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
        ),
    ]
}

fn read_time<'v>(arguments: &[Value<'v>], read: fn(&Zoned) -> i64) -> Eval<'v> {
    let (time, zone) = match arguments {
        // Kubernetes sets `DefaultUTCTimeZone`, so the zone of the server's machine has no effect.
        [Value::Timestamp(time)] => (*time, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => (*time, find_zone(zone)?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::Int(read(&in_zone(time, zone))))
}

fn in_zone(time: Timestamp, zone: TimeZone) -> Zoned {
    time.to_zoned(zone)
}

fn read_duration<'v>(arguments: &[Value<'v>], read: fn(&SignedDuration) -> i64) -> Eval<'v> {
    match arguments {
        [Value::Duration(length)] => Ok(Value::Int(read(length))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

/// Finds a time zone by its name (`Europe/Berlin`) or its distance from UTC (`-02:30`).
fn find_zone(name: &str) -> Result<TimeZone, EvalError> {
    let unknown = || EvalError::message(format!("unknown time zone {name}"));
    // No time zone has a colon in its name, so cel-go takes such a text for an offset.
    let Some((hours, minutes)) = name.split_once(':') else {
        if matches!(name, "" | "UTC" | "Local") {
            return Ok(TimeZone::UTC);
        }
        return ZONES.get(name).map_err(|_| unknown());
    };
    let parsed = hours.parse::<i32>().ok().zip(minutes.parse::<i32>().ok());
    let (hours, minutes) = parsed.ok_or_else(unknown)?;
    if hours.abs() > 23 || !(0..60).contains(&minutes) {
        return Err(unknown());
    }
    // The number of hours has lost the sign of `-00:30`.
    let sign = if name.starts_with('-') { -1 } else { 1 };
    let seconds = (hours * 60 + sign * minutes) * 60;
    Offset::from_seconds(seconds)
        .map(TimeZone::fixed)
        .map_err(|_| unknown())
}
