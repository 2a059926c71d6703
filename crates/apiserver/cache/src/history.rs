//! The recent changes of one cache.
//!
//! Bounded by count and by age: a resource that is written all the time keeps what a client needs
//! to resume a watch, and a quiet one keeps its last changes.

use crate::{CacheEvent, Entry};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

// Upstream sizes each window between 100 and 102,400 events, by the age of its events.
const MAX: usize = 8192;
const KEPT_ANYWAY: usize = 128;
// Longer than the interval of bookmarks, so that a client which resumes from its last bookmark
// finds the history that it needs.
const KEPT_FOR: Duration = Duration::from_secs(180);

#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<CacheEvent>>,
    /// The oldest revision from which a watch may start.
    oldest: i64,
}

impl History {
    pub(crate) fn starting_at(revision: i64) -> Self {
        History {
            events: VecDeque::new(),
            oldest: revision,
        }
    }

    pub(crate) fn push(&mut self, event: Arc<CacheEvent>) {
        while self.events.len() >= KEPT_ANYWAY {
            let Some(first) = self.events.front() else {
                break;
            };
            if self.events.len() < MAX && event.at.duration_since(first.at) < KEPT_FOR {
                break;
            }
            // A watch may start after the dropped event, but not before it.
            self.oldest = first.revision;
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Replaces the previous state of the last event, and of the event that led to it, by a copy.
    pub(crate) fn replace_last_old(&mut self, copy: Arc<Entry>) {
        let is_source = |event: &CacheEvent| {
            let new = event.new.as_ref();
            new.is_some_and(|new| new.revision == copy.revision && new.key == copy.key)
        };
        // One transaction may have changed several objects at a revision.
        let start = self
            .events
            .partition_point(|event| event.revision < copy.revision);
        let from = self.events.range_mut(start..);
        let same = from.take_while(|event| event.revision == copy.revision);
        for event in same {
            if is_source(event) {
                *event = Arc::new(event.with_states(event.old.clone(), Some(copy.clone())));
            }
        }
        if let Some(last) = self.events.back_mut() {
            *last = Arc::new(last.with_states(Some(copy), last.new.clone()));
        }
    }

    /// Returns the last `count` changes, oldest first; `None` if some of them were dropped.
    pub(crate) fn last_events(
        &self,
        count: usize,
    ) -> Option<impl Iterator<Item = &Arc<CacheEvent>>> {
        let start = self.events.len().checked_sub(count)?;
        Some(self.events.range(start..))
    }

    pub(crate) fn oldest_revision(&self) -> i64 {
        self.oldest
    }

    /// Returns changes after `revision`, oldest first; `None` if some of them were dropped.
    pub(crate) fn events_after(
        &self,
        revision: i64,
    ) -> Option<impl DoubleEndedIterator<Item = &Arc<CacheEvent>>> {
        if revision < self.oldest {
            return None;
        }
        // Events are in revision order, so that the first missed one is found by bisection.
        let start = self
            .events
            .partition_point(|event| event.revision <= revision);
        Some(self.events.range(start..))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn event(revision: i64, age: Duration) -> Arc<CacheEvent> {
        let mut event = CacheEvent::new(revision, None, None);
        event.at = event.at.checked_sub(age).unwrap();
        Arc::new(event)
    }

    #[test]
    fn start_before_the_oldest_revision_is_rejected() {
        let mut history = History::starting_at(10);
        for revision in 11..14 {
            history.push(event(revision, Duration::ZERO));
        }
        assert!(history.events_after(9).is_none());
        let after = history.events_after(11).unwrap();
        let revisions: Vec<i64> = after.map(|e| e.revision).collect();
        assert_eq!(revisions, [12, 13]);
        assert_eq!(history.events_after(99).unwrap().count(), 0);
    }

    #[test]
    fn busy_history_is_bounded_by_its_count() {
        let mut history = History::starting_at(0);
        for revision in 1..=10_000 {
            history.push(event(revision, Duration::ZERO));
        }
        assert_eq!(history.events.len(), MAX);
        assert_eq!(history.oldest_revision(), 10_000 - 8192);
        assert!(history.events_after(10_000 - 8192).is_some());
    }

    #[test]
    fn quiet_history_keeps_its_last_events_however_old() {
        let mut history = History::starting_at(0);
        for revision in 1..=200 {
            history.push(event(revision, Duration::from_secs(600)));
        }
        assert_eq!(history.oldest_revision(), 0, "all have the same age");
        history.push(event(201, Duration::ZERO));
        assert_eq!(history.events.len(), KEPT_ANYWAY);
        assert_eq!(history.oldest_revision(), 201 - 128);
    }
}
