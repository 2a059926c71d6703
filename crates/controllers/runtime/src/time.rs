//! Times as the API carries them: whole seconds.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A timestamp cut to whole seconds.
pub fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The API's form of a moment.
pub fn api(at: Timestamp) -> Time {
    Time(whole(at))
}

/// The moment `seconds` after `at`.
pub fn after(at: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_second(at.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX)
}

/// How long from `now` until `then`, zero where it has passed.
pub fn until(then: Timestamp, now: Timestamp) -> Duration {
    let millis = then.as_millisecond().saturating_sub(now.as_millisecond());
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
