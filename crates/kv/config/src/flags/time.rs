//! Parses durations in flags.

use anyhow::{Result, anyhow};
use std::time::Duration;

/// Parses `1h30m`, `10m`, `500ms`; a bare number counts in `unit`s.
pub fn parse_duration(flag: &str, text: &str, unit: Duration) -> Result<Duration> {
    if let Ok(count) = text.parse::<u32>() {
        return Ok(unit * count);
    }
    base_duration::parse_unsigned(text).map_err(|error| anyhow!("--{flag}: {error}"))
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
