//! The rules of one Service. Pure: the same Service, slices and node always give the same text.
//!
//! A port has a `service` chain that picks an endpoint, an `external` chain for connections that come in from outside
//! (node port, external and load balancer's addresses), a `firewall` chain where sources are restricted, and an
//! `endpoint` chain for each endpoint. The maps of the skeleton lead into them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::endpoints::{Endpoint, choose, endpoints};
use crate::local::Node;
use crate::model::{Family, Protocol, ServicePort, service_ports};
use crate::names;
use crate::skeleton::{
    CLUSTER_IPS, FIREWALL_IPS, MARK, NO_ENDPOINT_NODE_PORTS, NO_ENDPOINT_SERVICES, REJECT, SERVICE_IPS,
    SERVICE_NODE_PORTS,
};

/// What one Service contributes to one family's table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Sets, with their declaration.
    pub sets: BTreeMap<String, String>,
    /// Chains, with their rules.
    pub chains: BTreeMap<String, Vec<String>>,
    /// Elements of the skeleton's sets and maps: key to verdict (empty in sets).
    pub elements: BTreeMap<(&'static str, String), String>,
}

/// Where UDP packets for a Service arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Front {
    /// An address and port.
    Address(IpAddr, u16),
    /// A port of the node's addresses.
    NodePort(u16),
}

/// What one Service contributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragment {
    /// For each family.
    pub parts: BTreeMap<Family, Part>,
    /// UDP fronts and where their packets may go, for connection tracking.
    pub udp: BTreeMap<Front, BTreeSet<IpAddr>>,
    /// The health check port and how many endpoints are on this node.
    pub health: Option<(u16, usize)>,
}

/// Computes the rules of a Service.
#[must_use]
pub fn fragment(service: &Service, slices: &[Arc<EndpointSlice>], node: &Node) -> Fragment {
    let mut out = Fragment::default();
    for port in service_ports(service) {
        for family in [Family::V4, Family::V6] {
            if !node.families.contains(&family) || !port.cluster_ips.iter().any(|ip| Family::of(*ip) == family) {
                continue;
            }
            let all = endpoints(&port, family, slices, &node.name);
            if port.external_local && port.health_check_node_port > 0 {
                let local = choose(&all, true, &node.name, None).iter().filter(|e| e.ready).count();
                let before = out.health.map_or(0, |(_, count)| count);
                out.health = Some((port.health_check_node_port, before.max(local)));
            }
            let mut build = Build::new(&port, family, node, &all);
            build.port();
            let part = out.parts.entry(family).or_default();
            part.sets.extend(build.part.sets);
            part.chains.extend(build.part.chains);
            part.elements.extend(build.part.elements);
            out.udp.extend(build.udp);
        }
    }
    out
}

struct Build<'a> {
    port: &'a ServicePort,
    family: Family,
    node: &'a Node,
    internal: Vec<&'a Endpoint>,
    external: Vec<&'a Endpoint>,
    any: bool,
    part: Part,
    udp: BTreeMap<Front, BTreeSet<IpAddr>>,
}

impl<'a> Build<'a> {
    fn new(port: &'a ServicePort, family: Family, node: &'a Node, all: &'a [Endpoint]) -> Self {
        let zone = node.zone.as_deref();
        let everywhere = choose(all, false, &node.name, zone);
        let select = |local| if local { choose(all, true, &node.name, zone) } else { everywhere.clone() };
        Self {
            port,
            family,
            node,
            internal: select(port.internal_local),
            external: select(port.external_local),
            any: !everywhere.is_empty(),
            part: Part::default(),
            udp: BTreeMap::new(),
        }
    }

    fn port(&mut self) {
        let service = names::chain("service", &self.port.readable());
        let external = names::chain("external", &self.port.readable());
        let inside = self.addresses(&self.port.cluster_ips);
        let mut outside = self.addresses(&self.port.external_ips);
        let balancer = self.addresses(&self.port.load_balancer_ips);
        outside.extend(balancer.iter().copied());

        for ip in &inside {
            self.part.elements.insert((CLUSTER_IPS, ip.to_string()), String::new());
            self.lead(*ip, &service, self.internal.is_empty());
        }
        for ip in &outside {
            self.lead(*ip, &external, self.external.is_empty());
        }
        if self.port.node_port > 0 {
            self.lead_node_port(&external);
        }
        let reached_outside = !outside.is_empty() || self.port.node_port > 0;
        let chained = (reached_outside && !self.external.is_empty()).then_some(external);
        if !self.internal.is_empty() || (chained.is_some() && !self.port.external_local) {
            self.service_chain(&service, &inside);
        }
        if let Some(external) = chained {
            self.external_chain(&external, &service);
        }
        self.firewall(&balancer);
        let used: BTreeSet<&Endpoint> = self.internal.iter().chain(&self.external).copied().collect();
        for endpoint in used {
            self.endpoint_chain(endpoint);
        }
    }

    fn addresses(&self, all: &[IpAddr]) -> Vec<IpAddr> {
        all.iter().copied().filter(|ip| Family::of(*ip) == self.family).collect()
    }

    /// What becomes of a connection that finds no endpoint: refused if there is none at all, dropped if only the
    /// policy hides them.
    fn without_endpoints(&self) -> String {
        if self.any { "drop".to_owned() } else { format!("goto {REJECT}") }
    }

    fn lead(&mut self, ip: IpAddr, chain: &str, empty: bool) {
        let key = format!("{ip} . {} . {}", self.port.protocol.word(), self.port.port);
        if empty {
            self.part.elements.insert((NO_ENDPOINT_SERVICES, key), self.without_endpoints());
        } else {
            self.part.elements.insert((SERVICE_IPS, key), format!("goto {chain}"));
        }
        self.track(Front::Address(ip, self.port.port));
    }

    fn lead_node_port(&mut self, chain: &str) {
        let key = format!("{} . {}", self.port.protocol.word(), self.port.node_port);
        if self.external.is_empty() {
            self.part.elements.insert((NO_ENDPOINT_NODE_PORTS, key), self.without_endpoints());
        } else {
            self.part.elements.insert((SERVICE_NODE_PORTS, key), format!("goto {chain}"));
        }
        self.track(Front::NodePort(self.port.node_port));
    }

    fn track(&mut self, front: Front) {
        if self.port.protocol == Protocol::Udp {
            let targets = self.internal.iter().chain(&self.external).map(|endpoint| endpoint.address.ip()).collect();
            self.udp.insert(front, targets);
        }
    }

    fn service_chain(&mut self, name: &str, inside: &[IpAddr]) {
        let word = self.family.word();
        let (protocol, port) = (self.port.protocol.word(), self.port.port);
        let mut rules = Vec::new();
        for ip in inside {
            let to = format!("{word} daddr {ip} {protocol} dport {port}");
            if self.node.masquerade_all {
                rules.push(format!("{to} jump {MARK}"));
            } else if let Some(pods) = self.node.pods(self.family) {
                rules.push(format!("{to} {word} saddr != {pods} jump {MARK}"));
            }
        }
        let targets = if self.internal.is_empty() { self.external.clone() } else { self.internal.clone() };
        rules.extend(self.spread(&targets));
        self.part.chains.insert(name.to_owned(), rules);
    }

    fn external_chain(&mut self, name: &str, service: &str) {
        let word = self.family.word();
        let mut rules = Vec::new();
        if !self.port.external_local {
            rules.push(format!("jump {MARK}"));
            rules.push(format!("goto {service}"));
        } else {
            // Connections of our own pods and of the node itself are internal: they may go everywhere.
            if self.part.chains.contains_key(service) {
                if let Some(pods) = self.node.pods(self.family) {
                    rules.push(format!("{word} saddr {pods} goto {service}"));
                }
                rules.push(format!("fib saddr type local jump {MARK}"));
                rules.push(format!("fib saddr type local goto {service}"));
            }
            rules.extend(self.spread(&self.external));
        }
        self.part.chains.insert(name.to_owned(), rules);
    }

    /// Rules that pick one of the endpoints: the one the client is bound to, else any.
    fn spread(&self, targets: &[&Endpoint]) -> Vec<String> {
        let word = self.family.word();
        let mut rules = Vec::new();
        if let Some(seconds) = self.port.affinity {
            for endpoint in targets {
                let set = self.affinity_set(endpoint, seconds);
                rules.push(format!("{word} saddr @{set} goto {}", self.name("endpoint", endpoint)));
            }
        }
        let picks: Vec<String> = targets
            .iter()
            .enumerate()
            .map(|(n, endpoint)| format!("{n} : goto {}", self.name("endpoint", endpoint)))
            .collect();
        if !picks.is_empty() {
            rules.push(format!("numgen random mod {} vmap {{ {} }}", picks.len(), picks.join(", ")));
        }
        rules
    }

    fn name(&self, kind: &str, endpoint: &Endpoint) -> String {
        let address = endpoint.address.ip().to_string().replace(':', ".");
        names::chain(kind, &format!("{}__{address}/{}", self.port.readable(), endpoint.address.port()))
    }

    /// The set of an endpoint's clients; another timeout makes another set.
    fn affinity_set(&self, endpoint: &Endpoint, seconds: u32) -> String {
        self.name(&format!("affinity{seconds}"), endpoint)
    }

    fn endpoint_chain(&mut self, endpoint: &Endpoint) {
        let word = self.family.word();
        let name = self.name("endpoint", endpoint);
        // A pod that reaches itself must see another source, or its answer never leaves it.
        let mut rules = vec![format!("{word} saddr {} jump {MARK}", endpoint.address.ip())];
        if let Some(seconds) = self.port.affinity {
            let set = self.affinity_set(endpoint, seconds);
            rules.push(format!("update @{set} {{ {word} saddr }}"));
            let kind = self.family.address_type();
            self.part.sets.insert(set, format!("type {kind}; flags dynamic,timeout; timeout {seconds}s;"));
        }
        rules.push(format!("meta l4proto {} dnat to {}", self.port.protocol.word(), endpoint.address));
        self.part.chains.insert(name, rules);
    }

    fn firewall(&mut self, balancer: &[IpAddr]) {
        let ranges: Vec<String> = self
            .port
            .source_ranges
            .iter()
            .filter(|range| Family::of(range.addr()) == self.family)
            .map(ToString::to_string)
            .collect();
        if self.port.source_ranges.is_empty() || balancer.is_empty() {
            return;
        }
        let name = names::chain("firewall", &self.port.readable());
        let word = self.family.word();
        let rule = match ranges.as_slice() {
            [] => "drop".to_owned(),
            some => format!("{word} saddr != {{ {} }} drop", some.join(", ")),
        };
        self.part.chains.insert(name.clone(), vec![rule]);
        for ip in balancer {
            let key = format!("{ip} . {} . {}", self.port.protocol.word(), self.port.port);
            self.part.elements.insert((FIREWALL_IPS, key), format!("goto {name}"));
        }
    }
}

#[cfg(test)]
#[path = "fragment_tests.rs"]
pub(crate) mod tests;
