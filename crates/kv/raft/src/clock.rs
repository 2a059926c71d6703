//! The clock that leases are measured with.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;

/// Tells the time since some moment. It must go on while the machine is suspended, as that of the others does.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// Any clock; for simulations.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    /// The machine's, since it was booted. `std`'s and tokio's clocks stand still while it is suspended.
    pub fn boot() -> Self {
        Clock::new(|| {
            let now = clock_gettime(ClockId::Boottime);
            Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
        })
    }

    /// The time.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_clock_is_that_since_its_boot() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
        let seconds: f64 = uptime.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default();
        let now = Clock::boot().now().as_secs_f64();
        assert!(now + 0.02 >= seconds && now < seconds + 600.0, "{now} of {seconds}");
    }
}
