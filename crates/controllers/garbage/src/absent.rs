//! UIDs of objects that are known to be deleted.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Minimum time for which a UID is kept; the maximum is twice as long.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// UIDs of recently deleted objects, so that thousands of dependents do not each read the same
/// owner. A UID is never used again. The sets are dropped as a whole, because expiring single UIDs
/// would need a scan on each lookup.
#[derive(Debug)]
pub struct RecentlyAbsent {
    young: HashSet<String>,
    old: HashSet<String>,
    since: Instant,
}

impl RecentlyAbsent {
    /// Creates an empty set.
    pub fn new(now: Instant) -> Self {
        Self {
            young: HashSet::new(),
            old: HashSet::new(),
            since: now,
        }
    }

    /// Returns whether the UID was recorded recently.
    pub fn contains(&self, uid: &str) -> bool {
        self.young.contains(uid) || self.old.contains(uid)
    }

    /// Records a UID.
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
