//! When the leader was last heard, for clients that require one.
//!
//! Votes depend on `vote_guard`, which counts a call once it is handled and durable. A member whose
//! disk is slow still has a leader meanwhile, as in etcd.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Calls of the leader to this member.
#[derive(Debug)]
pub(crate) struct LeaderCalls {
    last: Mutex<Instant>,
    /// Snapshots that are being installed. The leader may send nothing else until their end.
    installing: AtomicUsize,
}

/// An installation in progress; it ends when this is dropped.
pub(crate) struct Installation<'a>(&'a LeaderCalls);

impl Drop for Installation<'_> {
    fn drop(&mut self) {
        self.0.record();
        self.0.installing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LeaderCalls {
    pub fn new() -> Self {
        LeaderCalls {
            last: Mutex::new(Instant::now()),
            installing: AtomicUsize::new(0),
        }
    }

    /// Records that a call has arrived.
    pub fn record(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Records that a snapshot is being installed.
    pub fn start_installation(&self) -> Installation<'_> {
        self.installing.fetch_add(1, Ordering::Relaxed);
        Installation(self)
    }

    /// Returns whether a call has arrived within the last `length`.
    pub fn are_recent(&self, length: Duration) -> bool {
        self.installing.load(Ordering::Relaxed) > 0 || self.last.lock().elapsed() < length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_recent_for_a_while_and_an_installation_until_its_end() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let calls = LeaderCalls::new();
        assert!(calls.are_recent(HOUR));
        assert!(!calls.are_recent(Duration::ZERO));
        let installation = calls.start_installation();
        assert!(calls.are_recent(Duration::ZERO));
        drop(installation);
        assert!(calls.are_recent(HOUR) && !calls.are_recent(Duration::ZERO));
    }
}
