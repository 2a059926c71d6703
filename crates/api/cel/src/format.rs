//! Text forms of bytes, durations and timestamps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};

/// The first second of the year 1.
pub const MIN_TIMESTAMP: i64 = -62_135_596_800;
/// The last second of the year 9999.
pub const MAX_TIMESTAMP: i64 = 253_402_300_799;

/// Decodes base64.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Parses a date (`2026-01-31`) as midnight UTC.
pub fn parse_date(text: &str) -> Option<Timestamp> {
    let date: jiff::civil::Date = (text.len() == 10).then(|| text.parse().ok())??;
    date.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Parses a time of RFC 3339 between the years 1 and 9999.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes.get(range).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let shaped = digits(0..4)
        && bytes.get(4) == Some(&b'-')
        && bytes.get(10) == Some(&b'T')
        && digits(17..19)
        && (text.ends_with('Z') || bytes.iter().rev().nth(2) == Some(&b':'));
    let timestamp: Timestamp = shaped.then(|| text.parse().ok())??;
    in_range(timestamp).then_some(timestamp)
}

/// Reports whether a point in time lies between the years 1 and 9999.
pub fn in_range(timestamp: Timestamp) -> bool {
    (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(&timestamp.as_second())
}

/// Parses a duration in Go's notation (`1h15m30.5s`).
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total: i128 = 0;
    let mut rest = rest;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (nanos, after) = parse_component(rest)?;
        total = total.checked_add(nanos)?;
        rest = after;
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).ok().map(SignedDuration::from_nanos)
}

/// Parses one number with a unit, and returns its nanoseconds and the rest of the text.
fn parse_component(text: &str) -> Option<(i128, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(number_end)?;
    let unit_end =
        rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at_checked(unit_end)?;
    let scale: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { i128::from(whole.parse::<u64>().ok()?) };
    let mut nanos = whole.checked_mul(scale)?;
    let mut unit_part = scale;
    for digit in fraction.bytes() {
        unit_part /= 10;
        nanos += i128::from(digit - b'0') * unit_part;
    }
    Some((nanos, rest))
}
