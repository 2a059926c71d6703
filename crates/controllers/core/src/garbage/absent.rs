//! UIDs of objects that are known to be gone.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How long a UID is remembered at least; at most twice as long.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// UIDs that were gone a short while ago, so that thousands of dependents do not ask for the same owner. A UID never
/// comes back; the sets are dropped as a whole, because looking through them would cost every question a scan.
#[derive(Debug)]
pub struct RecentlyAbsent {
    young: HashSet<String>,
    old: HashSet<String>,
    since: Instant,
}

impl RecentlyAbsent {
    /// Nothing is known to be gone.
    pub fn new(now: Instant) -> Self {
        Self { young: HashSet::new(), old: HashSet::new(), since: now }
    }

    /// Whether the UID was noted lately.
    pub fn contains(&self, uid: &str) -> bool {
        self.young.contains(uid) || self.old.contains(uid)
    }

    /// Notes a UID.
    pub fn insert(&mut self, uid: &str, now: Instant) {
        if now.duration_since(self.since) >= KEPT_FOR {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(uid.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_is_remembered_for_one_to_two_periods() {
        let start = Instant::now();
        let mut absent = RecentlyAbsent::new(start);
        absent.insert("a", start);
        absent.insert("b", start + KEPT_FOR);
        assert!(absent.contains("a") && absent.contains("b"));
        absent.insert("c", start + KEPT_FOR * 2);
        assert!(!absent.contains("a") && absent.contains("b") && absent.contains("c"));
    }
}
