//! Durations in Go's notation.

use std::time::Duration;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 50s or 1h30m")]
pub struct DurationError(String);

/// Units in seconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    // The micro sign and the Greek letter, as in Go.
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// Parses a duration in Go's notation, such as `1h30m`, `1.5s` or `100ms`. `0` needs no unit.
///
/// # Errors
/// Any other text, and a negative duration.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    parse(text).ok_or_else(|| DurationError(text.to_owned()))
}

fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !is_of_number(c))?);
        let (unit, tail) = tail.split_at(tail.find(is_of_number).unwrap_or(tail.len()));
        let (_, seconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let number: f64 = number.parse().ok()?;
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    Some(total)
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_parsed() {
        for (text, nanos) in [
            ("0", 0),
            ("15s", 15_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1h0m0s", 3_600_000_000_000),
            ("1.5s", 1_500_000_000),
            ("100ms", 100_000_000),
            ("1s5\u{b5}s1ns", 1_000_005_001),
            ("2us", 2_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "",
            "5",
            "m",
            "5 s",
            "5 days",
            "1m5",
            "-1s",
            "1e99999h",
            "99999999999999999999h",
            ".s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
