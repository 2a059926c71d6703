//! One port of a Service in one family: the elements of the shared maps that lead to its chains.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::part::Part;
use crate::base_chains::{
    CLUSTER_IPS, NO_ENDPOINT_NODE_PORTS, NO_ENDPOINT_SERVICES, REJECT, SERVICE_IPS,
    SERVICE_NODE_PORTS,
};
use crate::endpoints::{Endpoint, choose_endpoints};
use crate::local::LocalNode;
use crate::model::ServicePort;
use net_nft::{Family, Protocol};

/// Addresses that receive UDP packets, with their targets.
type UdpTargets = BTreeMap<SocketAddr, BTreeSet<IpAddr>>;

/// Names of the chains that pick an endpoint.
pub(super) struct Chains {
    /// Endpoints of the whole cluster.
    pub(super) service: String,
    /// Endpoints of this node.
    pub(super) local: String,
    /// Connections from outside; leads to one of the others.
    pub(super) external: String,
}

pub(super) struct Build<'a> {
    pub(super) port: &'a ServicePort,
    pub(super) family: Family,
    pub(super) node: &'a LocalNode,
    pub(super) chains: Chains,
    /// Endpoints for the policy Cluster.
    pub(super) everywhere: Vec<&'a Endpoint>,
    /// Endpoints for the policy Local.
    pub(super) here: Vec<&'a Endpoint>,
    pub(super) part: Part,
    /// Endpoints that still serve, whatever the policies: established connections to them stay, as
    /// those of TCP do.
    serving: BTreeSet<IpAddr>,
    udp: UdpTargets,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        port: &'a ServicePort,
        family: Family,
        node: &'a LocalNode,
        all: &'a [Endpoint],
    ) -> Self {
        let readable = port.readable();
        let chain = |kind| net_nft::chain_name(kind, &readable);
        let serving = all.iter().filter(|endpoint| endpoint.serving);
        Self {
            port,
            family,
            node,
            chains: Chains {
                service: chain("service"),
                local: chain("local"),
                external: chain("external"),
            },
            // The zone counts for the policy Cluster only.
            everywhere: choose_endpoints(all, false, &node.name, node.zone.as_deref()),
            here: choose_endpoints(all, true, &node.name, None),
            part: Part::default(),
            serving: serving.map(|endpoint| endpoint.address.ip()).collect(),
            udp: UdpTargets::new(),
        }
    }

    /// Yields the policies Local that have no endpoint although other nodes do.
    pub(super) fn policies_without_endpoints(&self) -> impl Iterator<Item = &'static str> {
        let lacks = self.here.is_empty() && !self.everywhere.is_empty();
        let outside = self
            .port
            .external_ips
            .iter()
            .chain(&self.port.load_balancer_ips);
        let accessible =
            self.port.node_port > 0 || outside.into_iter().any(|ip| Family::of(*ip) == self.family);
        let internal = ("internal", self.port.internal_local);
        let external = ("external", self.port.external_local && accessible);
        [internal, external]
            .into_iter()
            .filter(move |(_, local)| lacks && *local)
            .map(|(policy, _)| policy)
    }

    /// Returns the port's rules and its UDP targets.
    pub(super) fn finish(mut self) -> (Part, UdpTargets) {
        let cluster_ips = self.own_family(&self.port.cluster_ips);
        let balancer = self.own_family(&self.port.load_balancer_ips);
        let mut outside = self.own_family(&self.port.external_ips);
        outside.extend(balancer.iter().copied());
        for ip in &cluster_ips {
            self.part
                .elements
                .insert((CLUSTER_IPS, ip.to_string()), String::new());
            self.lead_cluster_ip(*ip);
        }
        for ip in &outside {
            self.lead_outside(*ip);
        }
        if self.port.node_port > 0 {
            self.lead_node_port();
        }
        // Without an external chain no element leads from outside to the endpoints.
        let external = !outside.is_empty() || self.port.node_port > 0;
        self.add_policy_chains(external, &cluster_ips);
        if external && !self.everywhere.is_empty() {
            self.add_external_chain();
        }
        self.add_firewall(&balancer);
        (self.part, self.udp)
    }

    pub(super) fn policy_endpoints(&self, local_only: bool) -> &[&'a Endpoint] {
        if local_only {
            &self.here
        } else {
            &self.everywhere
        }
    }

    /// Returns the chain of a traffic policy.
    pub(super) fn policy_chain(&self, local_only: bool) -> &str {
        if local_only {
            &self.chains.local
        } else {
            &self.chains.service
        }
    }

    pub(super) fn own_family(&self, all: &[IpAddr]) -> Vec<IpAddr> {
        all.iter()
            .copied()
            .filter(|ip| Family::of(*ip) == self.family)
            .collect()
    }

    /// Returns the verdict for a connection without an endpoint: reject if there is none at all,
    /// drop if only the policy excludes them.
    fn without_endpoints(&self) -> String {
        // Rejected, so that connections to a Service without endpoints fail at once. With a Local
        // policy other nodes serve, so the packet is dropped, as upstream does.
        if self.everywhere.is_empty() {
            format!("goto {REJECT}")
        } else {
            "drop".to_owned()
        }
    }

    fn lead_cluster_ip(&mut self, ip: IpAddr) {
        let (local_only, key) = (self.port.internal_local, self.address_key(ip));
        if self.policy_endpoints(local_only).is_empty() {
            self.part
                .elements
                .insert((NO_ENDPOINT_SERVICES, key), self.without_endpoints());
        } else {
            let verdict = format!("goto {}", self.policy_chain(local_only));
            self.part.elements.insert((SERVICE_IPS, key), verdict);
        }
        self.track_udp(SocketAddr::new(ip, self.port.port));
    }

    fn lead_outside(&mut self, ip: IpAddr) {
        let key = self.address_key(ip);
        self.lead_external(SERVICE_IPS, NO_ENDPOINT_SERVICES, key);
        self.track_udp(SocketAddr::new(ip, self.port.port));
    }

    fn lead_node_port(&mut self) {
        let key = format!(
            "{} . {}",
            self.port.protocol.nft_name(),
            self.port.node_port
        );
        self.lead_external(SERVICE_NODE_PORTS, NO_ENDPOINT_NODE_PORTS, key);
        for ip in self.own_family(&self.node.node_port_addresses) {
            self.track_udp(SocketAddr::new(ip, self.port.node_port));
        }
    }

    /// Adds the elements of an external address. With the policy Local and endpoints on other nodes
    /// only, a key is in both maps: the external chain sends connections of this node and its pods
    /// to those endpoints, and the other map drops the rest, which is not translated.
    fn lead_external(&mut self, services: &'static str, no_endpoints: &'static str, key: String) {
        if !self.everywhere.is_empty() {
            self.part.elements.insert(
                (services, key.clone()),
                format!("goto {}", self.chains.external),
            );
        }
        if self.policy_endpoints(self.port.external_local).is_empty() {
            self.part
                .elements
                .insert((no_endpoints, key), self.without_endpoints());
        }
    }

    fn address_key(&self, ip: IpAddr) -> String {
        format!(
            "{ip} . {} . {}",
            self.port.protocol.nft_name(),
            self.port.port
        )
    }

    fn track_udp(&mut self, front: SocketAddr) {
        if self.port.protocol == Protocol::Udp {
            self.udp.insert(front, self.serving.clone());
        }
    }
}
