//! A limit of the rate of batches.

use std::time::Duration;
use tokio::time::Instant;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Throttle {
    pub(crate) fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Throttle {
            per_second,
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes a token and returns the time until it may be used.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        // Below zero, the bucket owes tokens to those that wait.
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst) - 1.0;
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or_default()
    }
}
