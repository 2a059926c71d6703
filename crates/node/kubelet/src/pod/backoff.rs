//! Exponential back-off: 10 s, doubled up to 5 min, reset after 10 min without a failure.

use super::{Nanos, SECOND};

const FIRST: Nanos = 10 * SECOND;
const MOST: Nanos = 300 * SECOND;

/// The back-off of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    delay: Nanos,
    last: Nanos,
}

impl Backoff {
    /// Returns the earliest time of the next try after a failure at `event`.
    pub(crate) fn ready_at(&self, event: Nanos) -> Nanos {
        if self.expired(event) {
            event
        } else {
            event.saturating_add(self.delay)
        }
    }

    /// Returns the current delay in seconds.
    pub(crate) fn delay_seconds(&self) -> i64 {
        self.delay / SECOND
    }

    /// Records a try.
    pub(crate) fn advance(&mut self, now: Nanos) {
        self.delay = if self.expired(now) {
            FIRST
        } else {
            (self.delay * 2).min(MOST)
        };
        self.last = now;
    }

    fn expired(&self, event: Nanos) -> bool {
        self.delay == 0 || event.saturating_sub(self.last) > 2 * MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_are_forgotten() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.ready_at(5), 5, "the first try is at once");
        let mut waits = Vec::new();
        for _ in 0..7 {
            backoff.advance(100);
            waits.push(backoff.delay_seconds());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        let late = 100 + 601 * SECOND;
        assert_eq!(backoff.ready_at(late), late);
    }
}
