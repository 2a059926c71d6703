//! A rule of a policy, and its text for nft.

use std::fmt;

use ipnet::IpNet;
use net_nft::{Family, Protocol};

use crate::policy::Direction;
use crate::selector::PodSelector;

/// Packets that a policy allows: those that match both peer and port.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRule {
    /// The other end of the connection.
    pub peer: PeerMatch,
    /// Protocol and destination port.
    pub port: PortMatch,
}

/// Peers of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerMatch {
    /// Every address.
    Any,
    /// Pods; the selector has no port.
    Pods(PodSelector),
    /// Addresses of a network.
    Block {
        /// The network.
        net: IpNet,
        /// Parts of the network that do not match; they do not overlap.
        except: Vec<IpNet>,
    },
}

/// Destination ports of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum PortMatch {
    /// Every protocol and port.
    Any,
    /// Ports by number.
    Numbers {
        /// Protocol.
        protocol: Protocol,
        /// Ranges in ascending order that do not overlap.
        ranges: Vec<PortRange>,
    },
    /// Pods with the numbers that a port's name has in each of them; the selector has a port.
    Named(PodSelector),
}

/// Ports from the first to the last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

impl PortRange {
    /// All ports.
    pub const ALL: Self = Self {
        first: 0,
        last: u16::MAX,
    };
}

impl fmt::Display for PortRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(out, "{}", self.first)
        } else {
            write!(out, "{}-{}", self.first, self.last)
        }
    }
}

impl PolicyRule {
    /// Returns the selectors whose sets the rule's text refers to.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &PodSelector> {
        let peer = match &self.peer {
            PeerMatch::Pods(selector) => Some(selector),
            PeerMatch::Any | PeerMatch::Block { .. } => None,
        };
        let port = match &self.port {
            PortMatch::Named(selector) => Some(selector),
            PortMatch::Any | PortMatch::Numbers { .. } => None,
        };
        peer.into_iter().chain(port)
    }

    /// Returns the rule for a table; None if no packet of the family matches.
    pub(crate) fn write_text(&self, direction: Direction, family: Family) -> Option<String> {
        let word = family.nft_name();
        let peer_field = match direction {
            Direction::Ingress => "saddr",
            Direction::Egress => "daddr",
        };
        let mut text = String::new();
        match &self.peer {
            PeerMatch::Any => {}
            PeerMatch::Pods(selector) => {
                text += &format!("{word} {peer_field} @{} ", selector.set_name());
            }
            PeerMatch::Block { net, .. } if Family::of(net.addr()) != family => return None,
            PeerMatch::Block { net, except } => {
                // nft has no prefix of length 0: such a block is every address of the family.
                if net.prefix_len() > 0 {
                    text += &format!("{word} {peer_field} {net} ");
                }
                let excluded: Vec<String> = except
                    .iter()
                    .filter(|net| Family::of(net.addr()) == family)
                    .map(ToString::to_string)
                    .collect();
                if !excluded.is_empty() {
                    text += &format!("{word} {peer_field} != {{ {} }} ", excluded.join(", "));
                }
            }
        }
        match &self.port {
            PortMatch::Any => {}
            PortMatch::Numbers { protocol, ranges } if *ranges == [PortRange::ALL] => {
                text += &format!("meta l4proto {} ", protocol.nft_name());
            }
            PortMatch::Numbers { protocol, ranges } => {
                let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                let protocol = protocol.nft_name();
                text += &format!("{protocol} dport {{ {} }} ", ranges.join(", "));
            }
            PortMatch::Named(selector) => {
                let set = selector.set_name();
                text += &format!("{word} daddr . meta l4proto . th dport @{set} ");
            }
        }
        Some(text + "accept")
    }
}
