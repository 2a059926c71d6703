//! Parses durations in flags.

use anyhow::{Result, bail};
use std::time::Duration;

/// Parses `1h30m`, `10m`, `500ms`; a bare number counts in `unit`s.
pub(crate) fn parse_duration(flag: &str, text: &str, unit: Duration) -> Result<Duration> {
    if let Ok(count) = text.parse::<u32>() {
        return Ok(unit * count);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(tail.len());
        let (name, tail) = tail.split_at(letters);
        let seconds = match name {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => bail!("--{flag}: {text:?} is not a time like 1h30m"),
        };
        let Ok(number) = number.parse::<f64>() else {
            bail!("--{flag}: {text:?} is not a time like 1h30m")
        };
        total += Duration::from_secs_f64(number * seconds);
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_are_read_as_go_does() {
        let hour = Duration::from_secs(3600);
        assert_eq!(parse_duration("x", "1h30m", hour).unwrap(), hour * 3 / 2);
        assert_eq!(parse_duration("x", "2", hour).unwrap(), hour * 2);
        assert_eq!(
            parse_duration("x", "500ms", hour).unwrap(),
            Duration::from_millis(500)
        );
        assert_eq!(
            parse_duration("x", "1s5µs1ns", hour).unwrap(),
            Duration::from_nanos(1_000_005_001)
        );
        assert!(
            parse_duration("x", "soon", hour)
                .unwrap_err()
                .to_string()
                .contains("soon")
        );
    }
}
