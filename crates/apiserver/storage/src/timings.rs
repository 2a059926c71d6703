//! How long operations take, by name: what a metrics page shows of them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts and sums; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Timings(Arc<Mutex<BTreeMap<&'static str, (u64, Duration)>>>);

impl Timings {
    /// Adds one operation that began at `begun`.
    pub fn add(&self, name: &'static str, begun: Instant) {
        let mut all = self.0.lock();
        let entry = all.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1 + begun.elapsed());
    }

    /// Name, count and sum of each.
    pub fn all(&self) -> Vec<(&'static str, u64, Duration)> {
        self.0.lock().iter().map(|(name, (count, sum))| (*name, *count, *sum)).collect()
    }
}
