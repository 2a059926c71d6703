//! The time of the next attempt of work that failed.

use std::time::Duration;

use tokio::time::Instant;

/// The next attempt; none while nothing failed. Delays double.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    at: Option<Instant>,
    delay: Duration,
}

impl Retry {
    /// Records a failure.
    pub(crate) fn schedule(&mut self, first: Duration, last: Duration) {
        self.delay = (self.delay * 2).clamp(first, last.max(first));
        self.at = Some(Instant::now() + self.delay);
    }

    /// Records a success.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Waits for the next attempt; forever if there is none.
    pub(crate) async fn wait(&self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_until_a_success() {
        let (first, last) = (Duration::from_secs(1), Duration::from_secs(3));
        let mut retry = Retry::default();
        for (succeeds, expect) in [(false, 1), (false, 2), (false, 3), (true, 1)] {
            if succeeds {
                retry.clear();
                assert_eq!(retry.at, None);
            }
            let began = Instant::now();
            retry.schedule(first, last);
            let delay = Duration::from_secs(expect);
            assert!(retry.at >= Some(began + delay) && retry.delay == delay);
        }
    }
}
