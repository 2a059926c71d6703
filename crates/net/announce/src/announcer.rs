//! The decisions of a node: which addresses it announces, and which frames it sends.
//!
//! Times are those of a clock that counts suspended time, from any origin.

mod link_state;

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::arp::{self, ArpMessage};
use crate::claims::{Claim, Desired};
use crate::ethernet::{ARP, HEARTBEAT, IPV6, Mac, parse_frame};
use crate::heartbeat::Heartbeat;
use crate::links::Link;
use crate::ndp::NeighborMessage;
use crate::output::Output;
use link_state::LinkState;

/// Interval of heartbeats, and of the calls of [`Announcer::tick`].
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(400);
/// Time for which a process listens before it sends heartbeats and announces. In this time, each
/// member sends a heartbeat.
const LISTENING_TIME: Duration = Duration::from_millis(700);
/// Maximum number of assignments between two ticks that heartbeats cause: a host that sends those
/// of ever new names must not keep this process busy.
const MAX_ASSIGNMENTS: u32 = 16;
/// Time between two ticks after which others may have taken the addresses of this node. It is
/// shorter than the time after which they do.
const STALL_LIMIT: Duration = Duration::from_millis(1200);

/// Least time between two reports of a machine with the name of this node.
const NAME_REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The state of a node's announcements.
#[derive(Debug)]
pub struct Announcer {
    node: String,
    desired: Desired,
    links: Vec<LinkState>,
    /// Addresses of the pool that this node's interfaces have.
    own: HashSet<IpAddr>,
    last_tick: Duration,
    /// Assignments that heartbeats may cause before the next tick.
    assignments_left: u32,
    /// Time of the last output about another machine with the name of this node.
    name_reported: Option<Duration>,
    /// Members have changed since the last assignment.
    is_stale: bool,
    version: u64,
}

impl Announcer {
    /// Creates the state of a node without links and addresses.
    #[must_use]
    pub fn new(node: String, now: Duration) -> Self {
        Self {
            node,
            desired: Desired::default(),
            links: Vec::new(),
            own: HashSet::new(),
            last_tick: now,
            assignments_left: MAX_ASSIGNMENTS,
            name_reported: None,
            is_stale: false,
            version: 0,
        }
    }

    /// Returns a number that changes with the addresses of this node.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the addresses that this node announces, with the index of their link.
    pub fn owned(&self) -> impl Iterator<Item = (u32, IpAddr)> {
        let links = self.links.iter();
        links.flat_map(|state| state.owned().map(|address| (state.link().index, address)))
    }

    /// Returns the number of other nodes on the link that has most of them.
    #[must_use]
    pub fn count_members(&self) -> usize {
        self.links
            .iter()
            .map(LinkState::count_members)
            .max()
            .unwrap_or(0)
    }

    /// Replaces the addresses to announce.
    pub fn set_desired(&mut self, desired: Desired, now: Duration) -> Vec<Output> {
        if self.has_stalled(now) {
            self.start_listening(now);
        }
        let mut outputs = Vec::new();
        if desired.cluster != self.desired.cluster
            || desired.is_eligible != self.desired.is_eligible
        {
            outputs = self.leave();
            self.start_listening(now);
        }
        self.desired = desired;
        outputs.extend(self.assign());
        outputs
    }

    /// Replaces the links. `own` are the addresses of the pool that this node's interfaces have.
    pub fn set_links(
        &mut self,
        links: Vec<Link>,
        own: HashSet<IpAddr>,
        now: Duration,
    ) -> Vec<Output> {
        if own == self.own && self.links.iter().map(LinkState::link).eq(&links) {
            return Vec::new();
        }
        self.own = own;
        let mut former = std::mem::take(&mut self.links);
        for link in links {
            let is_same = |state: &LinkState| {
                let known = state.link();
                (known.index, known.mac) == (link.index, link.mac)
            };
            // The members of an interface stay when it gets another address.
            let state = match former.iter().position(is_same) {
                Some(at) => former.swap_remove(at).with_link(link),
                None => LinkState::new(link, now),
            };
            self.links.push(state);
        }
        self.assign()
    }

    /// Handles a frame that a link has received.
    pub fn receive(&mut self, link: u32, frame: &[u8], now: Duration) -> Vec<Output> {
        if self.has_stalled(now) {
            // The frame is as old as the stop: others may own the addresses by now.
            self.start_listening(now);
            return Vec::new();
        }
        let Some((kind, sender, payload)) = parse_frame(frame) else {
            return Vec::new();
        };
        let Some(at) = self.links.iter().position(|s| s.link().index == link) else {
            return Vec::new();
        };
        match kind {
            ARP => ArpMessage::parse(payload)
                .map(|message| self.receive_arp(at, &message, now))
                .unwrap_or_default(),
            IPV6 => NeighborMessage::parse(payload)
                .map(|message| self.receive_neighbor(at, sender, &message, now))
                .unwrap_or_default(),
            HEARTBEAT => match Heartbeat::parse(payload) {
                Some(heartbeat) => self.receive_heartbeat(at, sender, &heartbeat, now),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn receive_arp(&mut self, at: usize, message: &ArpMessage, now: Duration) -> Vec<Output> {
        let Some(state) = self.links.get_mut(at) else {
            return Vec::new();
        };
        let mac = message.sender_mac;
        if mac != state.link().mac && state.owns(message.sender.into()) {
            return state.defend(message.sender.into(), mac, now);
        }
        if !message.is_request || !state.owns(message.target.into()) {
            return Vec::new();
        }
        let frame = arp::build_reply(state.link().mac, message.target, message);
        vec![state.send(frame)]
    }

    fn receive_neighbor(
        &mut self,
        at: usize,
        sender: Mac,
        message: &NeighborMessage,
        now: Duration,
    ) -> Vec<Output> {
        let Some(state) = self.links.get_mut(at) else {
            return Vec::new();
        };
        if sender == state.link().mac || !state.owns(message.target.into()) {
            return Vec::new();
        }
        if !message.is_solicitation {
            return state.defend(message.target.into(), sender, now);
        }
        let frame = state.link().advertiser().build_answer(sender, message);
        vec![state.send(frame)]
    }

    fn receive_heartbeat(
        &mut self,
        at: usize,
        sender: Mac,
        heartbeat: &Heartbeat,
        now: Duration,
    ) -> Vec<Output> {
        if heartbeat.cluster != self.desired.cluster {
            return Vec::new();
        }
        if heartbeat.node == self.node {
            return self.report_name(sender, now).into_iter().collect();
        }
        let Some(state) = self.links.get_mut(at) else {
            return Vec::new();
        };
        self.is_stale |= state.record(heartbeat, sender, now);
        if !self.is_stale || self.assignments_left == 0 {
            // The next tick assigns the addresses.
            return Vec::new();
        }
        self.assignments_left -= 1;
        self.assign()
    }

    /// Reports a machine with the name of this node: both would announce the same addresses.
    fn report_name(&mut self, mac: Mac, now: Duration) -> Option<Output> {
        let is_own = self.links.iter().any(|state| state.link().mac == mac);
        let is_recent = |last| now.saturating_sub(last) < NAME_REPORT_INTERVAL;
        if is_own || self.name_reported.is_some_and(is_recent) {
            return None;
        }
        self.name_reported = Some(now);
        Some(Output::DuplicateName { mac })
    }

    /// Sends heartbeats, repeats announcements, and takes the addresses of dead nodes. Called every
    /// 400 ms.
    pub fn tick(&mut self, now: Duration) -> Vec<Output> {
        if self.has_stalled(now) {
            self.start_listening(now);
        }
        self.last_tick = now;
        let mut outputs = Vec::new();
        let is_eligible = self.desired.is_eligible;
        let mut changed = self.is_stale;
        self.assignments_left = MAX_ASSIGNMENTS;
        for state in &mut self.links {
            changed |= state.expire(now);
            changed |= is_eligible && state.activate(now, LISTENING_TIME);
            outputs.extend(state.repeat_announcements(now));
        }
        // Before the announcements of new addresses: others stop to announce them first.
        outputs.extend(self.build_heartbeats(false));
        if changed {
            outputs.extend(self.assign());
        }
        outputs
    }

    /// Releases all addresses. The other nodes take them when they receive the frames.
    pub fn leave(&mut self) -> Vec<Output> {
        let outputs = self.build_heartbeats(true);
        for state in &mut self.links {
            state.deactivate();
        }
        self.desired.is_eligible = false;
        self.version += 1;
        outputs
    }

    fn build_heartbeats(&self, is_leaving: bool) -> Vec<Output> {
        let heartbeat = Heartbeat {
            cluster: self.desired.cluster,
            node: self.node.clone(),
            is_leaving,
        };
        let active = self.links.iter().filter(|state| state.is_active());
        active
            .map(|state| state.send(heartbeat.build(state.link().mac)))
            .collect()
    }

    fn has_stalled(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_tick) > STALL_LIMIT
    }

    /// Releases all addresses without a frame and forgets the members.
    fn start_listening(&mut self, now: Duration) {
        for state in &mut self.links {
            state.start_listening(now);
        }
        self.last_tick = now;
        self.version += 1;
    }

    /// Computes the addresses of this node; returns the announcements of new ones.
    fn assign(&mut self) -> Vec<Output> {
        self.is_stale = false;
        self.version += 1;
        let mut outputs = Vec::new();
        let mut of_links: Vec<Vec<&Claim>> = vec![Vec::new(); self.links.len()];
        for claim in &self.desired.claims {
            let chosen = choose_link(&self.links, claim.address);
            let is_usable = self.desired.is_eligible && !self.own.contains(&claim.address);
            if let Some(claims) = chosen.and_then(|at| of_links.get_mut(at))
                && is_usable
            {
                claims.push(claim);
            }
        }
        for (state, claims) in self.links.iter_mut().zip(of_links) {
            outputs.extend(state.assign(&self.node, &claims));
        }
        outputs
    }
}

/// Returns the position of the link whose network has the address; the smallest network if there
/// are several.
fn choose_link(links: &[LinkState], address: IpAddr) -> Option<usize> {
    let fitting = links.iter().enumerate().filter_map(|(at, state)| {
        let prefix = state.link().find_prefix(address)?;
        Some((prefix, std::cmp::Reverse(state.link().index), at))
    });
    fitting.max().map(|(_, _, at)| at)
}

#[cfg(test)]
mod tests;
