//! The announcers that are alive on a link.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ethernet::Mac;
use crate::ownership::Candidate;

/// Time after the last heartbeat at which a member counts as dead: four intervals.
pub(crate) const MEMBER_TIMEOUT: Duration = Duration::from_millis(1600);
/// Maximum number of announcers of a link. Any host of the link can send heartbeats.
pub(crate) const MAX_MEMBERS: usize = 256;

/// The members of a link, without this node.
///
/// If there are too many, those with the lowest hashes stay: all nodes keep the same ones, so an
/// address never has two owners for that reason.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// By the hash, then the name.
    known: BTreeMap<(u64, String), Member>,
}

#[derive(Debug)]
struct Member {
    /// Time of the last heartbeat.
    time: Duration,
    /// Sender of the last heartbeat.
    mac: Mac,
}

fn build_key(node: &str) -> (u64, String) {
    (Candidate::new(node).hash, node.to_owned())
}

impl Members {
    /// Records a heartbeat. Returns whether the member is new.
    pub(crate) fn record(&mut self, node: &str, mac: Mac, time: Duration) -> bool {
        let key = build_key(node);
        if let Some(member) = self.known.get_mut(&key) {
            (member.time, member.mac) = (time, mac);
            return false;
        }
        if self.known.len() >= MAX_MEMBERS {
            if self
                .known
                .last_key_value()
                .is_some_and(|(last, _)| key > *last)
            {
                return false;
            }
            self.known.pop_last();
        }
        self.known.insert(key, Member { time, mac });
        true
    }

    /// Removes a member; returns whether there was one.
    pub(crate) fn remove(&mut self, node: &str) -> bool {
        self.known.remove(&build_key(node)).is_some()
    }

    /// Removes the dead members; returns whether there were any.
    pub(crate) fn expire(&mut self, now: Duration) -> bool {
        let before = self.known.len();
        self.known
            .retain(|_, member| now.saturating_sub(member.time) < MEMBER_TIMEOUT);
        self.known.len() != before
    }

    /// Returns the candidates for the ownership of addresses: the members and this node, without
    /// the highest one if there are too many.
    pub(crate) fn candidates<'n>(&'n self, own: &'n str) -> Vec<Candidate<'n>> {
        let members = self.known.keys();
        let members = members.map(|(hash, node)| Candidate { node, hash: *hash });
        let mut all: Vec<_> = members.chain([Candidate::new(own)]).collect();
        all.sort_by_key(|candidate| (candidate.hash, candidate.node));
        all.truncate(MAX_MEMBERS);
        all
    }

    /// Returns whether a member has the Ethernet address.
    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        self.known.values().any(|member| member.mac == mac)
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn names<'n>(members: &'n Members, own: &'n str) -> BTreeSet<&'n str> {
        let candidates = members.candidates(own);
        candidates.iter().map(|candidate| candidate.node).collect()
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn member_dies_1600_ms_after_its_last_heartbeat() {
        let mut members = Members::default();
        assert!(members.record("a", [2; 6], ms(0)));
        assert!(members.record("b", [2; 6], ms(500)));
        assert!(!members.record("a", [2; 6], ms(1000)));
        assert!(!members.expire(ms(2099)));
        assert!(members.expire(ms(2100)));
        assert_eq!(names(&members, "own"), BTreeSet::from(["a", "own"]));
        assert!(members.remove("a") && !members.remove("a"));
    }

    #[test]
    fn flood_of_names_is_bounded() {
        let mut members = Members::default();
        for n in 0..10_000 {
            members.record(&format!("n{n}"), [2; 6], ms(1));
        }
        assert_eq!(members.len(), MAX_MEMBERS);
        assert_eq!(members.candidates("own").len(), MAX_MEMBERS);
    }

    #[test]
    fn nodes_of_a_link_with_too_many_have_the_same_candidates() {
        let nodes: Vec<_> = (0..300).map(|n| format!("node-{n}")).collect();
        let mut views = BTreeSet::new();
        for (at, own) in nodes.iter().enumerate() {
            let mut members = Members::default();
            // Each node receives the others in another order.
            for other in nodes[at..].iter().chain(&nodes[..at]).skip(1) {
                members.record(other, [2; 6], ms(0));
            }
            let names = names(&members, own);
            views.insert(names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        }
        assert_eq!(views.len(), 1);
        assert_eq!(views.first().map(Vec::len), Some(MAX_MEMBERS));
    }
}
