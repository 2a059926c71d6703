//! Relists of a pod that are due because an exit of one of its containers was announced.
//!
//! The runtime may announce an exit before its list shows it, and may show it before it knows that
//! the OOM killer was the reason.

use super::view::{CriContainer, Observed};
use super::{Nanos, SECOND};
use std::collections::{BTreeMap, BTreeSet};

/// Number of relists for an announced exit; after these it is left to the next periodic relist.
const MAX_RELISTS: u32 = 10;
/// Delay before the second relist; doubled for each further one, up to 64 times.
const DELAY: Nanos = SECOND / 50;
/// Reason that the runtime reports for a container killed by the OOM killer.
const OUT_OF_MEMORY: &str = "OOMKilled";

/// The announced exits of a pod's containers that the observed state does not show yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PendingRelists {
    /// Relists since the announcement, by container id.
    counts: BTreeMap<String, u32>,
    /// Containers that were reported out of memory.
    oom_candidates: BTreeSet<String>,
}

impl PendingRelists {
    /// Records that the runtime announced the exit of a container.
    pub(crate) fn expect_exit(&mut self, id: String) {
        self.counts.insert(id, 0);
    }

    /// Records that a container ran out of memory.
    pub(crate) fn expect_oom_exit(&mut self, id: String) {
        self.oom_candidates.insert(id.clone());
        self.counts.insert(id, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns the time of the next relist.
    pub(crate) fn next_at(&self, now: Nanos) -> Option<Nanos> {
        let delays = self.counts.values().map(|count| DELAY << (*count).min(6));
        delays.min().map(|delay| now + delay)
    }

    /// Returns the containers whose exit must be read again, because its reason may be missing.
    pub(crate) fn oom_candidates(&self) -> &BTreeSet<String> {
        &self.oom_candidates
    }

    /// Counts a relist, and drops the exits that it shows.
    pub(crate) fn record_relist(&mut self, observed: &Observed) {
        let candidates = &self.oom_candidates;
        let may_change = |c: &CriContainer| {
            c.is_running() || (candidates.contains(&c.id) && c.reason != OUT_OF_MEMORY)
        };
        // A limit, because the runtime may never show the exit of a container that it has lost.
        self.counts.retain(|id, count| {
            *count += 1;
            *count <= MAX_RELISTS && observed.by_id(id).is_some_and(may_change)
        });
        self.oom_candidates
            .retain(|id| self.counts.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::view::CriState;

    fn observed(state: CriState, reason: &str) -> Observed {
        let container = CriContainer {
            id: "c0".into(),
            name: "c".into(),
            state,
            reason: reason.into(),
            ..CriContainer::default()
        };
        Observed::new(Vec::new(), vec![container])
    }

    #[test]
    fn relist_continues_until_the_exit_and_its_reason_are_shown() {
        use CriState::{Exited, Running};
        for (oom, state, reason, pending) in [
            (false, Running, "", true),
            (false, Exited, "Error", false),
            (true, Running, "", true),
            (true, Exited, "Error", true),
            (true, Exited, "OOMKilled", false),
        ] {
            let mut relists = PendingRelists::default();
            match oom {
                true => relists.expect_oom_exit("c0".into()),
                false => relists.expect_exit("c0".into()),
            }
            relists.record_relist(&observed(state, reason));
            let case = format!("oom {oom}, {state:?} {reason}");
            assert_eq!(relists.is_empty(), !pending, "{case}");
            assert_eq!(
                relists.oom_candidates().is_empty(),
                !(oom && pending),
                "{case}"
            );
        }
    }

    #[test]
    fn relist_of_an_unknown_container_is_dropped() {
        let mut relists = PendingRelists::default();
        relists.expect_exit("other".into());
        relists.record_relist(&observed(CriState::Running, ""));
        assert!(relists.is_empty());
    }

    #[test]
    fn relist_delay_doubles_and_relists_end() {
        let mut relists = PendingRelists::default();
        assert_eq!(relists.next_at(0), None);
        relists.expect_exit("c0".into());
        let mut delays = Vec::new();
        while let Some(at) = relists.next_at(0) {
            delays.push(at / DELAY);
            relists.record_relist(&observed(CriState::Running, ""));
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 64, 64, 64, 64]);
    }
}
