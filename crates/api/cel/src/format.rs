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
    // The parser accepts more forms, such as a sign before the year, so the length is fixed.
    let date: jiff::civil::Date = (text.len() == 10).then(|| text.parse().ok())??;
    date.to_zoned(jiff::tz::TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// Parses a time of RFC 3339 between the years 1 and 9999.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        bytes
            .get(range)
            .is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    // The parser accepts more than RFC 3339, for instance a space instead of `T`.
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
    // The last second before the year 1 has the same whole seconds if it is counted from below.
    let before_year_one =
        timestamp.as_second() == MIN_TIMESTAMP && timestamp.subsec_nanosecond() < 0;
    (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(&timestamp.as_second()) && !before_year_one
}

/// Parses a duration in Go's notation (`1h15m30.5s`).
pub fn parse_duration(text: &str) -> Option<SignedDuration> {
    base_duration::parse_duration(text)
        .ok()
        .map(SignedDuration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_rfc_3339() {
        for text in [
            "2026-01-31T10:00:00Z",
            "2026-01-31T10:00:00.5+02:00",
            "0001-01-01T00:00:00Z",
        ] {
            assert!(parse_timestamp(text).is_some(), "{text}");
        }
        for text in [
            "2026-01-31",
            "2026-01-31 10:00:00Z",
            "2026-13-01T00:00:00Z",
            "",
            "x",
            "0000-12-31T23:59:59Z",
            "2026-01-31T10:00Z",
            "2026-01-31T10:00:00[UTC]",
        ] {
            assert!(parse_timestamp(text).is_none(), "{text}");
        }
    }

    #[test]
    fn dates_are_midnight_in_utc() {
        let date = parse_date("2026-01-31").map(|date| date.to_string());
        assert_eq!(date.as_deref(), Some("2026-01-31T00:00:00Z"));
        assert!(parse_date("2026-01-32").is_none());
        assert!(parse_date("20260131").is_none());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(
            parse_duration("-1h0.5s").map(|d| d.as_nanos()),
            Some(-3_600_500_000_000)
        );
        for text in ["1", "1d", "", "h", "9999999h"] {
            assert!(parse_duration(text).is_none(), "{text}");
        }
    }
}
