//! Times in the API's precision: whole seconds.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Truncates a timestamp to whole seconds.
pub fn truncate_to_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Converts a timestamp to the API's type.
pub fn api_time(at: Timestamp) -> Time {
    Time(truncate_to_seconds(at))
}

/// Returns the time `seconds` after `at`.
pub fn seconds_after(at: Timestamp, seconds: i64) -> Timestamp {
    // Fields such as tolerationSeconds may be huge: a time that can't be expressed means
    // never.
    Timestamp::from_second(at.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX)
}

/// Returns the duration from `now` until `then`, zero if it has passed.
pub fn duration_until(then: Timestamp, now: Timestamp) -> Duration {
    let millis = then.as_millisecond().saturating_sub(now.as_millisecond());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    #[test]
    fn times_of_the_api_have_whole_seconds() {
        let at: Timestamp = "2026-01-01T00:00:00.987Z".parse().unwrap();
        assert_eq!(api_time(at).0.to_string(), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn distant_times_saturate() {
        assert_eq!(
            seconds_after(Timestamp::UNIX_EPOCH, i64::MAX),
            Timestamp::MAX
        );
        assert_eq!(seconds_after(Timestamp::UNIX_EPOCH, -60).as_second(), -60);
    }

    #[test]
    fn duration_until_a_past_time_is_zero() {
        let (past, now) = (
            Timestamp::UNIX_EPOCH,
            seconds_after(Timestamp::UNIX_EPOCH, 5),
        );
        assert!(duration_until(past, now).is_zero());
        assert_eq!(duration_until(now, past), Duration::from_secs(5));
    }
}
