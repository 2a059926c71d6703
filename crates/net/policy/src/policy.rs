//! A NetworkPolicy, parsed: which pods it isolates and which packets it allows.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use net_nft::Protocol;

use crate::direction::Direction;
use crate::limits::MAX_SELECTORS;
use crate::rules::{PeerMatch, PolicyRule, PortMatch, PortRange};
use crate::selector::{PodSelector, Scope};

/// A policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Namespace of the policy.
    pub namespace: String,
    /// Pods of the namespace that it isolates.
    pub pods: LabelSelector,
    /// Allowed packets in each direction, by [`Direction::index`]. None if pods are not isolated in
    /// that direction.
    pub rules: [Option<Vec<PolicyRule>>; 2],
    /// Peers and named ports that allow nothing, because the policy has more than 1,000 selectors.
    pub ignored_selectors: usize,
}

impl Policy {
    /// Parses a policy. A part that is not valid allows nothing.
    #[must_use]
    pub fn new(object: &NetworkPolicy) -> Self {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let spec = object.spec.clone().unwrap_or_default();
        let pods = spec.pod_selector.unwrap_or_default();
        let isolates = |name: &str, default: bool| match spec.policy_types.as_deref() {
            None | Some([]) => default,
            Some(types) => types.iter().any(|kind| kind == name),
        };
        let ingress = spec.ingress.unwrap_or_default();
        let egress = spec.egress.unwrap_or_default();
        let isolates_egress = isolates("Egress", !egress.is_empty());
        let parser = Parser {
            namespace: &namespace,
            pods: &pods,
        };
        let ingress = ingress.iter().map(|rule| {
            let (ports, peers) = (rule.ports.as_deref(), rule.from.as_deref());
            parser.parse_rule(Direction::Ingress, ports, peers)
        });
        let egress = egress.iter().map(|rule| {
            let (ports, peers) = (rule.ports.as_deref(), rule.to.as_deref());
            parser.parse_rule(Direction::Egress, ports, peers)
        });
        let mut rules = [
            isolates("Ingress", true).then(|| ingress.collect()),
            isolates_egress.then(|| egress.collect()),
        ];
        let ignored_selectors = limit_selectors(rules.iter_mut().flatten().flatten());
        Self {
            ignored_selectors,
            rules,
            namespace,
            pods,
        }
    }

    /// Returns the number of rules, peers, blocks and ports: the length of the policy's text for
    /// nft.
    pub(crate) fn count_terms(&self) -> usize {
        let rules = self.rules.iter().flatten().flatten();
        rules.map(PolicyRule::count_terms).sum()
    }

    /// Returns the selectors of all rules.
    pub(crate) fn selectors(&self) -> impl Iterator<Item = &PodSelector> {
        let rules = self.rules.iter().flatten().flatten();
        rules.flat_map(PolicyRule::selectors)
    }
}

struct Parser<'a> {
    namespace: &'a str,
    pods: &'a LabelSelector,
}

impl Parser<'_> {
    fn parse_rule(
        &self,
        direction: Direction,
        ports: Option<&[NetworkPolicyPort]>,
        peers: Option<&[NetworkPolicyPeer]>,
    ) -> PolicyRule {
        let peers = match peers {
            None | Some([]) => vec![PeerMatch::Any],
            Some(peers) => peers
                .iter()
                .filter_map(|peer| self.parse_peer(peer))
                .collect(),
        };
        let ports = parse_ports(ports).into_iter().map(|port| match port {
            ParsedPort::Numbers(port) => port,
            ParsedPort::Named(name, protocol) => {
                PortMatch::Named(self.build_port_selector(direction, name, protocol))
            }
        });
        PolicyRule {
            peers,
            ports: ports.collect(),
        }
    }

    fn parse_peer(&self, peer: &NetworkPolicyPeer) -> Option<PeerMatch> {
        if let Some(block) = &peer.ip_block {
            return parse_block(block);
        }
        let scope = match &peer.namespace_selector {
            Some(selector) => Scope::Selected(selector.clone()),
            // Validation rejects a peer without any field. It must not mean all pods.
            None => peer
                .pod_selector
                .as_ref()
                .map(|_| Scope::Namespace(self.namespace.to_owned()))?,
        };
        Some(PeerMatch::Pods(PodSelector {
            scope,
            pods: peer.pod_selector.clone().unwrap_or_default(),
            port: None,
        }))
    }

    /// Returns the selector of a named port: the name stands for the port's number in each
    /// destination.
    fn build_port_selector(
        &self,
        direction: Direction,
        name: String,
        protocol: Protocol,
    ) -> PodSelector {
        let port = Some((name, protocol));
        let (scope, pods) = match direction {
            // The destination is a pod that the policy selects.
            Direction::Ingress => (
                Scope::Namespace(self.namespace.to_owned()),
                self.pods.clone(),
            ),
            // The destination is any pod that is a peer, which the rule matches beside the port.
            Direction::Egress => (Scope::All, LabelSelector::default()),
        };
        PodSelector { scope, pods, port }
    }
}

/// Removes the peers and ports after the first [`MAX_SELECTORS`] selectors; returns their number.
/// Less is allowed without them, never more: a rule without peers or without ports matches nothing.
fn limit_selectors<'a>(rules: impl Iterator<Item = &'a mut PolicyRule>) -> usize {
    let mut seen = 0;
    let mut is_allowed = |selector: Option<&PodSelector>| {
        seen += usize::from(selector.is_some());
        selector.is_none() || seen <= MAX_SELECTORS
    };
    for rule in rules {
        rule.peers.retain(|peer| is_allowed(peer.selector()));
        rule.ports.retain(|port| is_allowed(port.selector()));
    }
    seen.saturating_sub(MAX_SELECTORS)
}

enum ParsedPort {
    Numbers(PortMatch),
    Named(String, Protocol),
}

fn parse_ports(ports: Option<&[NetworkPolicyPort]>) -> Vec<ParsedPort> {
    let listed = match ports {
        None | Some([]) => return vec![ParsedPort::Numbers(PortMatch::Any)],
        Some(listed) => listed,
    };
    let mut found = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let own = || {
            listed
                .iter()
                .filter(|port| Protocol::parse(port.protocol.as_deref()) == Some(protocol))
        };
        let ranges = own().filter_map(parse_range).collect();
        let ranges = merge_ranges(ranges);
        if !ranges.is_empty() {
            found.push(ParsedPort::Numbers(PortMatch::Numbers { protocol, ranges }));
        }
        found.extend(own().filter_map(|port| match &port.port {
            Some(IntOrString::String(name)) if port.end_port.is_none() => {
                Some(ParsedPort::Named(name.clone(), protocol))
            }
            _ => None,
        }));
    }
    found
}

fn parse_range(port: &NetworkPolicyPort) -> Option<PortRange> {
    let number = |value: i32| u16::try_from(value).ok();
    match (&port.port, port.end_port) {
        (None, None) => Some(PortRange::ALL),
        (Some(IntOrString::Int(first)), None) => {
            let first = number(*first)?;
            Some(PortRange { first, last: first })
        }
        (Some(IntOrString::Int(first)), Some(last)) => {
            let (first, last) = (number(*first)?, number(last)?);
            (first <= last).then_some(PortRange { first, last })
        }
        // A name, which is no range, and what validation rejects.
        _ => None,
    }
}

/// Merges ranges that overlap or touch: nft rejects overlapping intervals in one set.
fn merge_ranges(mut ranges: Vec<PortRange>) -> Vec<PortRange> {
    ranges.sort();
    let mut merged: Vec<PortRange> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(before) if range.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn parse_block(block: &IPBlock) -> Option<PeerMatch> {
    let net: IpNet = block.cidr.parse().ok()?;
    let mut except = Vec::new();
    for text in block.except.iter().flatten() {
        // An exception that can't be parsed would allow what it excludes, so the block is ignored.
        except.push(text.parse().ok()?);
    }
    Some(PeerMatch::Block {
        net: net.trunc(),
        // Merged, as nft rejects overlapping intervals.
        except: IpNet::aggregate(&except),
    })
}
