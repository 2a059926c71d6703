//! The clock that measures leases.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;

/// Monotonic clock with an arbitrary origin. It must advance while the host is suspended, because
/// the other members' clocks do.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// Wraps an arbitrary time source, for simulations.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    /// Returns the host's boot-time clock. `std`'s and tokio's clocks stop while the host is
    /// suspended.
    pub fn boot() -> Self {
        Clock::new(|| {
            let now = clock_gettime(ClockId::Boottime);
            Duration::new(
                now.tv_sec.unsigned_abs(),
                u32::try_from(now.tv_nsec).unwrap_or_default(),
            )
        })
    }

    /// Returns the time since the origin.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_counts_from_the_start_of_the_host() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds: f64 = uptime
            .split(' ')
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default();
        let now = Clock::boot().now().as_secs_f64();
        assert!(
            now + 0.02 >= seconds && now < seconds + 600.0,
            "{now} of {seconds}"
        );
    }
}
