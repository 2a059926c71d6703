//! The decisions about one port of a Service in one family.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use net_nft::{Family, Protocol};

use super::port_rules::{External, Front, FrontAddress, PortRules, Refusal, Target};
use crate::endpoints::{Endpoint, choose_endpoints};
use crate::local::LocalNode;
use crate::model::ServicePort;

/// Addresses that receive UDP packets, with their targets.
type UdpTargets = BTreeMap<SocketAddr, BTreeSet<IpAddr>>;

pub(super) struct Build<'a> {
    port: &'a ServicePort,
    family: Family,
    node: &'a LocalNode,
    /// Endpoints for the policy Cluster.
    everywhere: Vec<&'a Endpoint>,
    /// Endpoints for the policy Local.
    here: Vec<&'a Endpoint>,
    /// Endpoints that still serve, whatever the policies: established connections to them stay, as
    /// those of TCP do.
    serving: BTreeSet<IpAddr>,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        port: &'a ServicePort,
        family: Family,
        node: &'a LocalNode,
        all: &'a [Endpoint],
    ) -> Self {
        let serving = all.iter().filter(|endpoint| endpoint.serving);
        Self {
            port,
            family,
            node,
            // The zone counts for the policy Cluster only.
            everywhere: choose_endpoints(all, false, &node.name, node.zone.as_deref()),
            here: choose_endpoints(all, true, &node.name, None),
            serving: serving.map(|endpoint| endpoint.address.ip()).collect(),
        }
    }

    /// Yields the policies Local that have no endpoint although other nodes do.
    pub(super) fn policies_without_endpoints(&self) -> impl Iterator<Item = &'static str> {
        let lacks = self.here.is_empty() && !self.everywhere.is_empty();
        let internal = ("internal", self.port.internal_local);
        let external = (
            "external",
            self.port.external_local && self.is_accessible_from_outside(),
        );
        [internal, external]
            .into_iter()
            .filter(move |(_, local)| lacks && *local)
            .map(|(policy, _)| policy)
    }

    /// Returns the port's rules and its UDP targets.
    pub(super) fn finish(self) -> (PortRules, UdpTargets) {
        let external = self.is_accessible_from_outside();
        // External connections need all endpoints even with the policy Local, for connections of
        // this node and its pods.
        let uses_all = !self.port.internal_local || external;
        let uses_local = self.port.internal_local || (self.port.external_local && external);
        let addresses = |used: bool, endpoints: &[&Endpoint]| match used {
            true => endpoints.iter().map(|endpoint| endpoint.address).collect(),
            false => Vec::new(),
        };
        let rules = PortRules {
            service: self.port.service.clone(),
            port_name: self.port.name.clone(),
            family: self.family,
            protocol: self.port.protocol,
            port: self.port.port,
            affinity: self.port.affinity,
            internal_local: self.port.internal_local,
            masquerade: self.node.masquerade_at(self.family),
            cluster: addresses(uses_all, &self.everywhere),
            local: addresses(uses_local, &self.here),
            hairpins: self.list_hairpins(external),
            external: self.external_chain(external),
            fronts: self.fronts(),
            allowed_sources: self.allowed_sources(),
        };
        (rules, self.udp_targets())
    }

    fn own_family<'b>(&self, all: &'b [IpAddr]) -> impl Iterator<Item = IpAddr> + use<'b> {
        let family = self.family;
        let own = all.iter().copied();
        own.filter(move |ip| Family::of(*ip) == family)
    }

    fn is_accessible_from_outside(&self) -> bool {
        self.port.node_port > 0
            || self.own_family(&self.port.external_ips).next().is_some()
            || self
                .own_family(&self.port.load_balancer_ips)
                .next()
                .is_some()
    }

    /// Returns the chain of external addresses. Without such an address, or without an endpoint,
    /// nothing leads to it.
    fn external_chain(&self, external: bool) -> Option<External> {
        if !external || self.everywhere.is_empty() {
            return None;
        }
        Some(match self.port.external_local {
            true => External::Local {
                pods: self.node.match_pods(self.family),
            },
            false => External::Cluster,
        })
    }

    /// Returns the endpoints whose connections to themselves may pass this node: those that may be
    /// on it. Connections of pods elsewhere keep their source here only at external addresses with
    /// the policy Local.
    fn list_hairpins(&self, external: bool) -> Vec<IpAddr> {
        let keeps_pods =
            external && self.port.external_local && self.node.match_pods(self.family).is_some();
        let all = self.everywhere.iter().chain(&self.here);
        let own = all.filter(|endpoint| keeps_pods || endpoint.may_be_local);
        let own: BTreeSet<IpAddr> = own.map(|endpoint| endpoint.address.ip()).collect();
        own.into_iter().collect()
    }

    fn fronts(&self) -> Vec<Front> {
        let cluster = self.own_family(&self.port.cluster_ips);
        let outside = self.own_family(&self.port.external_ips);
        let balancer = self.own_family(&self.port.load_balancer_ips);
        let node_port = Some(self.port.node_port).filter(|port| *port > 0);
        let external = outside
            .map(FrontAddress::External)
            .chain(balancer.map(FrontAddress::LoadBalancer))
            .chain(node_port.map(FrontAddress::NodePort));
        cluster
            .map(|ip| self.cluster_front(ip))
            .chain(external.map(|address| self.external_front(address)))
            .collect()
    }

    fn cluster_front(&self, ip: IpAddr) -> Front {
        let (target, endpoints) = match self.port.internal_local {
            true => (Target::Local, &self.here),
            false => (Target::Cluster, &self.everywhere),
        };
        let has = !endpoints.is_empty();
        Front {
            address: FrontAddress::Cluster(ip),
            target: has.then_some(target),
            refusal: (!has).then(|| self.refusal()),
        }
    }

    /// Returns the rules of an external address. With the policy Local and endpoints on other nodes
    /// only, it has both: the external chain sends connections of this node and its pods to those
    /// endpoints, and the rest, which is not translated, is dropped.
    fn external_front(&self, address: FrontAddress) -> Front {
        let served = match self.port.external_local {
            true => &self.here,
            false => &self.everywhere,
        };
        Front {
            address,
            target: (!self.everywhere.is_empty()).then_some(Target::External),
            refusal: served.is_empty().then(|| self.refusal()),
        }
    }

    fn refusal(&self) -> Refusal {
        match self.everywhere.is_empty() {
            true => Refusal::Reject,
            false => Refusal::Drop,
        }
    }

    fn allowed_sources(&self) -> Option<Vec<IpNet>> {
        let all = self.port.source_ranges.as_ref()?;
        let balancer: Vec<IpAddr> = self.own_family(&self.port.load_balancer_ips).collect();
        let own = |range: &&IpNet| Family::of(range.addr()) == self.family;
        let mut ranges: Vec<IpNet> = all.iter().filter(own).copied().collect();
        // A range of all addresses restricts nothing.
        let open = ranges.iter().any(|range| range.prefix_len() == 0);
        if open || balancer.is_empty() {
            return None;
        }
        // A balancer's address is often a local one of the node, and then the source of the node's
        // own connections to it.
        let contains = |ip: &IpAddr| ranges.iter().any(|range| range.contains(ip));
        if self.node.node_addresses.iter().any(contains) {
            ranges.extend(balancer.into_iter().map(IpNet::from));
        }
        Some(ranges)
    }

    /// Returns the addresses that receive UDP packets, with their targets.
    fn udp_targets(&self) -> UdpTargets {
        if self.port.protocol != Protocol::Udp {
            return UdpTargets::new();
        }
        let port = self.port;
        let addresses = [
            &port.cluster_ips,
            &port.external_ips,
            &port.load_balancer_ips,
        ];
        let listed = addresses.into_iter().flat_map(|all| self.own_family(all));
        let listed = listed.map(|ip| SocketAddr::new(ip, port.port));
        // The unspecified address stands for all of its family.
        let whole = self.node.node_port_families.iter().map(|f| f.unspecified());
        let whole: Vec<IpAddr> = whole.collect();
        let node = self.own_family(&self.node.node_port_addresses);
        let node = node
            .chain(self.own_family(&whole))
            .filter(|_| port.node_port > 0)
            .map(|ip| SocketAddr::new(ip, port.node_port));
        let targets = |front| (front, self.serving.clone());
        listed.chain(node).map(targets).collect()
    }
}
