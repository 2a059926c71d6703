//! The rules of one port in one family, without the words of a back end.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use net_nft::{Family, Protocol};

use crate::local::{Masquerade, PodMatch};

/// The rules of one port in one family.
///
/// There is a chain `cluster` that picks any endpoint (traffic policy Cluster), a chain `local`
/// that picks one of this node (policy Local), and a chain `external` for connections to the node
/// port, external and load balancer's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRules {
    /// `namespace/name` of the Service.
    pub service: String,
    /// Name of the port; may be empty.
    pub port_name: String,
    /// Family.
    pub family: Family,
    /// Protocol.
    pub protocol: Protocol,
    /// Port of all addresses except node ports.
    pub port: u16,
    /// Session affinity timeout in seconds.
    pub affinity: Option<u32>,
    /// Connections to cluster IPs use the chain `local`.
    pub internal_local: bool,
    /// Sources that are masqueraded at cluster IPs.
    pub masquerade: Masquerade,
    /// Endpoints of the chain `cluster`; empty if there is no such chain.
    pub cluster: Vec<SocketAddr>,
    /// Endpoints of the chain `local`; empty if there is no such chain.
    pub local: Vec<SocketAddr>,
    /// Addresses of endpoints whose connections to themselves may pass this node.
    pub hairpins: Vec<IpAddr>,
    /// The chain `external`, if there is one.
    pub external: Option<External>,
    /// Addresses of the port.
    pub fronts: Vec<Front>,
    /// Sources that may connect to the load balancer's addresses, if they are restricted.
    pub allowed_sources: Option<Vec<IpNet>>,
}

/// The chain `external`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum External {
    /// Policy Cluster: the reply must come back through this node, because another node may have
    /// the endpoint, so all connections are masqueraded.
    Cluster,
    /// Policy Local. Connections of the node and its pods are internal: they use the chain
    /// `cluster`. Those of the node are masqueraded.
    Local {
        /// Match of the pods, if they can be detected.
        pods: Option<PodMatch>,
    },
}

/// One address of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The address.
    pub address: FrontAddress,
    /// The chain that connections use; None if there is no endpoint.
    pub target: Option<Target>,
    /// Refusal of connections that no chain translated.
    pub refusal: Option<Refusal>,
}

/// An address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrontAddress {
    /// Cluster IP.
    Cluster(IpAddr),
    /// External IP.
    External(IpAddr),
    /// Address of the load balancer.
    LoadBalancer(IpAddr),
    /// Node port.
    NodePort(u16),
}

/// A chain that leads to endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The chain `cluster`.
    Cluster,
    /// The chain `local`.
    Local,
    /// The chain `external`.
    External,
}

/// The end of a connection without an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no endpoint at all: connections fail at once.
    Reject,
    /// The policy Local excludes the endpoints, and other nodes serve: packets are dropped, as in
    /// upstream.
    Drop,
}

impl PortRules {
    /// Returns the name in rules and messages.
    #[must_use]
    pub fn readable(&self) -> String {
        format!(
            "{}/{}/{}",
            self.service,
            self.protocol.nft_name(),
            self.port_name
        )
    }

    /// Gives the endpoints that were there before their former places, so that the difference is
    /// as small as the change.
    pub(crate) fn keep_order(&mut self, before: &Self) {
        keep_order(&before.cluster, &mut self.cluster);
        keep_order(&before.local, &mut self.local);
    }

    /// Returns whether other rules are those of the same port, whatever they contain.
    pub(crate) fn is_same_port(&self, other: &Self) -> bool {
        let id = |rules: &Self| (rules.family, rules.protocol, rules.port);
        id(self) == id(other) && self.port_name == other.port_name
    }

    /// Returns the chains that pick an endpoint, with their endpoints.
    pub(crate) fn policy_chains(&self) -> impl Iterator<Item = (Target, &[SocketAddr])> {
        let chains = [
            (Target::Cluster, self.cluster.as_slice()),
            (Target::Local, self.local.as_slice()),
        ];
        chains
            .into_iter()
            .filter(|(_, targets)| !targets.is_empty())
    }

    /// Returns the chain of connections to cluster IPs.
    pub(crate) fn internal_chain(&self) -> Target {
        match self.internal_local {
            true => Target::Local,
            false => Target::Cluster,
        }
    }

    /// Returns the endpoints of all chains, sorted.
    pub(crate) fn endpoints(&self) -> Vec<SocketAddr> {
        let mut all = [self.cluster.as_slice(), &self.local].concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Returns the cluster IPs.
    pub(crate) fn cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.fronts.iter().filter_map(|front| match front.address {
            FrontAddress::Cluster(ip) => Some(ip),
            _ => None,
        })
    }
}

/// Puts elements of `now` where they are in `before`, and the others into the remaining places.
fn keep_order(before: &[SocketAddr], now: &mut Vec<SocketAddr>) {
    let mut others: BTreeSet<SocketAddr> = now.iter().copied().collect();
    let places = before.iter().take(others.len());
    let kept: Vec<_> = places.map(|e| others.take(e)).collect();
    let places = kept.into_iter().chain(std::iter::repeat(None));
    let mut others = others.into_iter();
    let placed = places.map_while(|kept| kept.or_else(|| others.next()));
    *now = placed.take(now.len()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_keep_their_places() {
        for (before, now, expect) in [
            ("", "1 2 3", "1 2 3"),
            ("1 2 3", "1 2 3", "1 2 3"),
            ("3 2 1", "1 2 3", "3 2 1"),
            ("2 3 4", "1 2 3 4", "2 3 4 1"),
            ("1 2 3", "1 3 9", "1 9 3"),
            ("1 2 3 4", "2 3 4", "4 2 3"),
            ("1 2 3 4", "4", "4"),
            ("1 2", "", ""),
            ("1 2", "3 4 5", "3 4 5"),
        ] {
            let parse = |list: &str| -> Vec<SocketAddr> {
                let ports = list.split_whitespace().flat_map(str::parse::<u16>);
                ports
                    .map(|port| SocketAddr::from(([10, 0, 0, 1], port)))
                    .collect()
            };
            let mut found = parse(now);
            keep_order(&parse(before), &mut found);
            assert_eq!(found, parse(expect), "{before} to {now}");
        }
    }
}
