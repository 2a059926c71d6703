//! Cluster events during attempts.
//!
//! One log serves all attempts: each records its start in the log, and events that no attempt needs
//! are dropped.

use std::collections::{BTreeSet, HashMap, VecDeque};

use scheduler_framework::ClusterEvent;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct InFlight {
    /// Number of the first event after each attempt's start.
    started: HashMap<Uid, u64>,
    order: BTreeSet<(u64, Uid)>,
    changes: VecDeque<ClusterEvent>,
    /// Number of the first event in the log.
    first: u64,
}

impl InFlight {
    fn end_number(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    pub(super) fn start_attempt(&mut self, uid: &Uid) {
        self.forget_attempt(uid);
        let at = self.end_number();
        self.started.insert(uid.clone(), at);
        self.order.insert((at, uid.clone()));
    }

    pub(super) fn record_event(&mut self, event: ClusterEvent) {
        // Without an attempt in flight the event is not needed, and the log stays empty.
        if !self.started.is_empty() {
            self.changes.push_back(event);
        }
    }

    /// Ends an attempt and returns the events since its start.
    pub(super) fn finish_attempt(&mut self, uid: &str) -> Vec<ClusterEvent> {
        let Some(at) = self.started.get(uid) else {
            return Vec::new();
        };
        // Numbers count all events since the start of the process, positions only those still in
        // the log.
        let seen = usize::try_from(at.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let missed = self.changes.iter().skip(seen).cloned().collect();
        self.forget_attempt(uid);
        missed
    }

    /// Ends an attempt without returning events.
    pub(super) fn forget_attempt(&mut self, uid: &str) {
        let Some((uid, at)) = self.started.remove_entry(uid) else {
            return;
        };
        self.order.remove(&(at, uid));
        // Events older than the oldest attempt are dropped. A binding that hangs would let the log
        // grow, hence `done` ends a pod's entry before the binding cycle.
        let needed = self
            .order
            .first()
            .map_or_else(|| self.end_number(), |(at, _)| *at);
        let drop = usize::try_from(needed.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.changes.drain(..drop.min(self.changes.len()));
        self.first = needed;
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

pub(super) type Uid = Arc<str>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn attempt_gets_the_changes_since_it_began_and_the_log_is_trimmed() {
        let mut log = InFlight::default();
        let (a, b): (Uid, Uid) = (Arc::from("a"), Arc::from("b"));
        log.record_event(ClusterEvent::NamespaceChanged);
        log.start_attempt(&a);
        log.record_event(ClusterEvent::NamespaceChanged);
        log.start_attempt(&b);
        log.record_event(ClusterEvent::StorageChanged);
        assert_eq!(log.changes.len(), 2);
        assert_eq!(log.finish_attempt("a").len(), 2);
        assert_eq!(log.changes.len(), 1);
        assert_eq!(log.finish_attempt("b").len(), 1);
        assert!(log.changes.is_empty() && log.finish_attempt("b").is_empty());
    }
}
