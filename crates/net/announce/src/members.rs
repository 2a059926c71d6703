//! The announcers that are alive on a link.

use std::collections::HashMap;
use std::time::Duration;

use crate::ethernet::Mac;
use crate::ownership::Candidate;

/// Time after the last heartbeat at which a member counts as dead: four intervals.
pub(crate) const MEMBER_TIMEOUT: Duration = Duration::from_millis(1600);
/// Maximum number of members of a link. Any host of the link can send heartbeats.
const MAX_MEMBERS: usize = 256;

/// The members of a link, without this node.
#[derive(Debug, Default)]
pub(crate) struct Members {
    heard: HashMap<String, Member>,
}

#[derive(Debug)]
struct Member {
    /// Time of the last heartbeat.
    heard: Duration,
    /// Sender of the last heartbeat.
    mac: Mac,
    /// Computed once: each assignment reads it for each address.
    hash: u64,
}

impl Members {
    /// Records a heartbeat. Returns whether the member is new. If there are too many, new ones are
    /// ignored.
    pub(crate) fn record(&mut self, node: &str, mac: Mac, now: Duration) -> bool {
        if let Some(member) = self.heard.get_mut(node) {
            (member.heard, member.mac) = (now, mac);
            return false;
        }
        let has_room = self.heard.len() < MAX_MEMBERS;
        if has_room {
            let hash = Candidate::new(node).hash;
            let heard = now;
            self.heard
                .insert(node.to_owned(), Member { heard, mac, hash });
        }
        has_room
    }

    /// Removes a member; returns whether there was one.
    pub(crate) fn remove(&mut self, node: &str) -> bool {
        self.heard.remove(node).is_some()
    }

    /// Removes the dead members; returns whether there were any.
    pub(crate) fn expire(&mut self, now: Duration) -> bool {
        let before = self.heard.len();
        self.heard
            .retain(|_, member| now.saturating_sub(member.heard) < MEMBER_TIMEOUT);
        self.heard.len() != before
    }

    /// Returns the candidates for the ownership of addresses.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        let members = self.heard.iter();
        members.map(|(node, member)| Candidate {
            node,
            hash: member.hash,
        })
    }

    /// Returns whether a member has the Ethernet address.
    pub(crate) fn has_mac(&self, mac: Mac) -> bool {
        self.heard.values().any(|member| member.mac == mac)
    }

    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(
            members.candidates().map(|c| c.node).collect::<Vec<_>>(),
            ["a"]
        );
        assert!(members.remove("a") && !members.remove("a"));
    }

    #[test]
    fn flood_of_names_does_not_displace_members() {
        let mut members = Members::default();
        members.record("a", [2; 6], ms(0));
        for n in 0..10_000 {
            members.record(&format!("n{n}"), [2; 6], ms(1));
        }
        assert_eq!(members.len(), MAX_MEMBERS);
        assert!(members.remove("a"));
    }
}
