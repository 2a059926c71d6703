//! One link: its members, and the addresses that this node announces there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::arp;
use crate::claims::Claim;
use crate::ethernet::Mac;
use crate::heartbeat::Heartbeat;
use crate::links::Link;
use crate::members::Members;
use crate::output::Output;
use crate::ownership::{Candidate, choose_owner};

/// Ticks after the first announcement at which it is repeated: 0.4, 0.8, 1.6, 3.2 and 6.4 s.
const REPEATS: [u32; 5] = [1, 2, 4, 8, 16];
/// Least time between two defences of an address (RFC 5227, DEFEND_INTERVAL).
const DEFENCE_INTERVAL: Duration = Duration::from_secs(10);

/// Least time between two renewals of all announcements. Any host of the link can send heartbeats
/// of new names.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// An address of this node.
#[derive(Debug, Default)]
struct Announcement {
    /// Ticks since the first announcement.
    age: u32,
    defended: Option<Duration>,
}

/// The state of a link.
#[derive(Debug)]
pub(super) struct LinkState {
    link: Link,
    members: Members,
    owned: BTreeMap<IpAddr, Announcement>,
    /// Time since which the link is listened to.
    since: Duration,
    /// This node sends heartbeats and may own addresses.
    is_active: bool,
    /// A member is new: it may have announced addresses of this node before.
    has_new_member: bool,
    /// Time of the last renewal of all announcements.
    renewed: Option<Duration>,
}

impl LinkState {
    pub(super) fn new(link: Link, now: Duration) -> Self {
        Self {
            link,
            members: Members::default(),
            owned: BTreeMap::new(),
            since: now,
            is_active: false,
            has_new_member: false,
            renewed: None,
        }
    }

    /// Replaces the link by its current state.
    pub(super) fn with_link(self, link: Link) -> Self {
        Self { link, ..self }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    pub(super) fn owned(&self) -> impl Iterator<Item = IpAddr> {
        self.owned.keys().copied()
    }

    pub(super) fn owns(&self, address: IpAddr) -> bool {
        self.owned.contains_key(&address)
    }

    pub(super) fn count_members(&self) -> usize {
        self.members.len()
    }

    pub(super) fn send(&self, frame: Vec<u8>) -> Output {
        Output::Send {
            link: self.link.index,
            frame,
        }
    }

    /// Forgets the members and releases the addresses.
    pub(super) fn start_listening(&mut self, now: Duration) {
        self.deactivate();
        self.members = Members::default();
        self.since = now;
    }

    pub(super) fn deactivate(&mut self) {
        self.is_active = false;
        self.owned.clear();
    }

    /// Begins to send heartbeats after the time for listening; returns whether it begins now.
    pub(super) fn activate(&mut self, now: Duration, listening: Duration) -> bool {
        let begins = !self.is_active && now.saturating_sub(self.since) >= listening;
        self.is_active |= begins;
        begins
    }

    /// Records a heartbeat; returns whether the members have changed.
    pub(super) fn record(&mut self, heartbeat: &Heartbeat, mac: Mac, now: Duration) -> bool {
        if heartbeat.is_leaving {
            return self.members.remove(&heartbeat.node);
        }
        let is_new = self.members.record(&heartbeat.node, mac, now);
        self.has_new_member |= is_new;
        is_new
    }

    /// Removes dead members; returns whether there were any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        self.members.expire(now)
    }

    /// Replaces the addresses of this node by those of `claims` that it owns; returns the
    /// announcements of new ones.
    pub(super) fn assign(&mut self, node: &str, claims: &[&Claim]) -> Vec<Output> {
        let mut former = std::mem::take(&mut self.owned);
        let mut outputs = Vec::new();
        let candidates = self.members.candidates(node);
        for claim in claims {
            if !self.is_active || !self.link.is_host_address(claim.address) {
                continue;
            }
            let may_own = |candidate: &Candidate<'_>| match &claim.nodes {
                None => true,
                Some(nodes) => nodes.contains(candidate.node),
            };
            let all = candidates.iter().copied().filter(may_own);
            if choose_owner(claim.address, all) != Some(node) {
                continue;
            }
            let known = former.remove(&claim.address);
            if known.is_none() {
                outputs.push(self.announce(claim.address));
            }
            self.owned.insert(claim.address, known.unwrap_or_default());
        }
        outputs
    }

    /// Repeats the announcements of addresses that are new, and of all if a member is new: a link
    /// that was cut in two has clients of the other part's owner. A frame may be lost, and a former
    /// owner may have announced the address at the same time.
    pub(super) fn repeat_announcements(&mut self, now: Duration) -> Vec<Output> {
        let may_renew = |last| now.saturating_sub(last) >= RENEWAL_INTERVAL;
        if self.has_new_member && self.renewed.is_none_or(may_renew) {
            (self.has_new_member, self.renewed) = (false, Some(now));
            self.owned.values_mut().for_each(|known| known.age = 0);
        }
        let mut due = Vec::new();
        for (address, announcement) in &mut self.owned {
            announcement.age = announcement.age.saturating_add(1);
            if REPEATS.contains(&announcement.age) {
                due.push(*address);
            }
        }
        due.into_iter()
            .map(|address| self.announce(address))
            .collect()
    }

    /// Announces an address again that another host has announced.
    pub(super) fn defend(&mut self, address: IpAddr, mac: Mac, now: Duration) -> Vec<Output> {
        let Some(announcement) = self.owned.get_mut(&address) else {
            return Vec::new();
        };
        let last = announcement.defended;
        if last.is_some_and(|last| now.saturating_sub(last) < DEFENCE_INTERVAL) {
            return Vec::new();
        }
        announcement.defended = Some(now);
        let mut outputs = vec![self.announce(address)];
        // A member owned it until now, or does not know yet that this node does.
        if !self.members.has_mac(mac) {
            outputs.push(Output::Conflict { address, mac });
        }
        outputs
    }

    fn announce(&self, address: IpAddr) -> Output {
        self.send(match address {
            IpAddr::V4(v4) => arp::build_announcement(self.link.mac, v4),
            IpAddr::V6(v6) => self.link.advertiser().build_announcement(v6),
        })
    }
}
