//! Times in the API's precision: whole seconds.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Truncates a timestamp to whole seconds.
pub fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Converts a timestamp to the API's type.
pub fn api(at: Timestamp) -> Time {
    Time(whole(at))
}

/// Returns the time `seconds` after `at`.
pub fn after(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX)
}

/// Returns the duration from `now` until `then`, zero if it has passed.
pub fn until(then: Timestamp, now: Timestamp) -> Duration {
    let millis = then.as_millisecond().saturating_sub(now.as_millisecond());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
