//! A rule of a policy, and its text for nft.

use std::fmt;

use ipnet::IpNet;
use net_nft::{Family, Protocol};

use crate::direction::Direction;
use crate::names::object_name;
use crate::selector::PodSelector;

/// Packets that a policy allows: those that match one of the peers and one of the ports.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRule {
    /// The other end of the connection.
    pub peers: Vec<PeerMatch>,
    /// Protocol and destination port.
    pub ports: Vec<PortMatch>,
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
    /// Returns the number of peers, blocks and ports, and one for the rule itself.
    pub(crate) fn count_terms(&self) -> usize {
        let peers = self.peers.iter().map(|peer| match peer {
            PeerMatch::Any | PeerMatch::Pods(_) => 1,
            PeerMatch::Block { except, .. } => 1 + except.len(),
        });
        let ports = self.ports.iter().map(|port| match port {
            PortMatch::Any | PortMatch::Named(_) => 1,
            PortMatch::Numbers { ranges, .. } => ranges.len(),
        });
        1 + peers.sum::<usize>() + ports.sum::<usize>()
    }

    /// Returns the selectors whose sets the rule's text refers to.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &PodSelector> {
        let peers = self.peers.iter().filter_map(PeerMatch::selector);
        let ports = self.ports.iter().filter_map(PortMatch::selector);
        peers.chain(ports)
    }
}

impl PeerMatch {
    pub(crate) fn selector(&self) -> Option<&PodSelector> {
        match self {
            Self::Pods(selector) => Some(selector),
            Self::Any | Self::Block { .. } => None,
        }
    }

    /// Returns the text for a table; None if no packet of the family matches.
    fn write_text(&self, direction: Direction, family: Family) -> Option<String> {
        let word = family.nft_name();
        let field = match direction {
            Direction::Ingress => "saddr",
            Direction::Egress => "daddr",
        };
        match self {
            Self::Any => Some(String::new()),
            Self::Pods(selector) => Some(format!("{word} {field} @{} ", selector.set_name())),
            Self::Block { net, .. } if Family::of(net.addr()) != family => None,
            Self::Block { net, except } => {
                let mut text = String::new();
                // nft has no prefix of length 0: such a block is every address of the family.
                if net.prefix_len() > 0 {
                    text += &format!("{word} {field} {net} ");
                }
                let excluded: Vec<String> = except
                    .iter()
                    .filter(|net| Family::of(net.addr()) == family)
                    .map(ToString::to_string)
                    .collect();
                if !excluded.is_empty() {
                    text += &format!("{word} {field} != {{ {} }} ", excluded.join(", "));
                }
                Some(text)
            }
        }
    }
}

impl PortMatch {
    pub(crate) fn selector(&self) -> Option<&PodSelector> {
        match self {
            Self::Named(selector) => Some(selector),
            Self::Any | Self::Numbers { .. } => None,
        }
    }

    fn write_text(&self, family: Family) -> String {
        match self {
            Self::Any => String::new(),
            Self::Numbers { protocol, ranges } if *ranges == [PortRange::ALL] => {
                format!("meta l4proto {} ", protocol.nft_name())
            }
            Self::Numbers { protocol, ranges } => {
                let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                format!("{} dport {{ {} }} ", protocol.nft_name(), ranges.join(", "))
            }
            Self::Named(selector) => {
                let (word, set) = (family.nft_name(), selector.set_name());
                format!("{word} daddr . meta l4proto . th dport @{set} ")
            }
        }
    }
}

/// Writes the chains of a policy in one direction, the policy's own chain first.
///
/// A rule with several peers and several ports gets a chain for its ports, so that the text is as
/// long as the policy: each combination of them would be as many rules as the square of its size.
pub(crate) fn write_chains(
    key: &str,
    rules: &[PolicyRule],
    direction: Direction,
    family: Family,
) -> Vec<(String, Vec<String>)> {
    let mut own = Vec::new();
    let mut more = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let peers: Vec<String> = rule
            .peers
            .iter()
            .filter_map(|peer| peer.write_text(direction, family))
            .collect();
        let ports = rule.ports.iter().map(|port| port.write_text(family));
        let ports: Vec<String> = ports.map(|port| port + "accept").collect();
        if peers.len() > 1 && ports.len() > 1 {
            let kind = format!("rule-{}", direction.name());
            let name = object_name(&kind, &format!("{key} {index}"), key);
            own.extend(peers.iter().map(|peer| format!("{peer}jump {name}")));
            more.push((name, ports));
        } else {
            let pairs = peers
                .iter()
                .flat_map(|peer| ports.iter().map(move |port| format!("{peer}{port}")));
            own.extend(pairs);
        }
    }
    let mut chains = vec![(policy_chain(direction, key), own)];
    chains.append(&mut more);
    chains
}

/// Returns the name of a policy's own chain.
pub(crate) fn policy_chain(direction: Direction, key: &str) -> String {
    object_name(&format!("policy-{}", direction.name()), key, key)
}
