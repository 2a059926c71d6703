//! Renders the rules of a Service for iptables: chains in the table nat, and rules in the shared
//! chains that lead to them.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use net_nft::{Family, Protocol};

use super::names::{self, ChainNames, MARK};
use crate::local::{Masquerade, PodMatch};
use crate::part::Part;
use crate::service_rules::{
    External, Front, FrontAddress, PortRules, Refusal, ServiceRules, Target,
};

/// Chain of the table nat that leads to Services by their addresses.
pub(super) const NAT_SERVICES: &str = "nat KUBE-SERVICES";
/// Chain of the table nat that leads to Services by their node ports.
pub(super) const NAT_NODE_PORTS: &str = "nat KUBE-NODEPORTS";
/// Chain of the table filter for cluster IPs without an endpoint.
const FILTER_SERVICES: &str = "filter KUBE-SERVICES";
/// Chain of the table filter for other addresses without an endpoint.
const FILTER_EXTERNAL: &str = "filter KUBE-EXTERNAL-SERVICES";
/// Chain of the table filter that admits health checks.
const FILTER_NODE_PORTS: &str = "filter KUBE-NODEPORTS";
/// Chain of the table filter that drops what the chain of allowed sources did not translate.
const FILTER_FIREWALL: &str = "filter KUBE-PROXY-FIREWALL";

/// Returns the rules of a Service in a family.
#[must_use]
pub fn render_iptables(rules: &ServiceRules, family: Family) -> Part {
    let mut part = Part::default();
    for port in rules.ports.iter().filter(|port| port.family == family) {
        let mut port = Renderer {
            names: ChainNames::new(port),
            port,
            part: &mut part,
        };
        port.add_fronts();
        port.add_policy_chains();
        port.add_external_chain();
        port.add_firewall_chain();
    }
    let health = rules.health.as_ref();
    if let Some(health) = health.filter(|health| health.local.contains_key(&family)) {
        let key = format!("-p tcp -m tcp --dport {}", health.port);
        let value = comment("health check node port") + "-j ACCEPT";
        part.elements.insert((FILTER_NODE_PORTS, key), value.into());
    }
    part
}

/// Renders one port.
struct Renderer<'a> {
    port: &'a PortRules,
    part: &'a mut Part,
    names: ChainNames,
}

impl Renderer<'_> {
    /// Returns a comment that begins with the Service.
    fn comment(&self, text: &str) -> String {
        comment(&format!("{} {text}", self.names.readable))
    }

    fn match_port(&self, port: u16) -> String {
        let protocol = self.port.protocol.nft_name();
        format!("-p {protocol} -m {protocol} --dport {port}")
    }

    fn match_address(&self, ip: IpAddr) -> String {
        format!("-d {ip} {}", self.match_port(self.port.port))
    }

    /// Returns whether the load balancer's addresses have a chain of allowed sources. Without an
    /// endpoint they are refused to all.
    fn has_firewall(&self) -> bool {
        self.port.allowed_sources.is_some() && self.port.external.is_some()
    }

    fn add_fronts(&mut self) {
        for front in &self.port.fronts {
            self.add_target(front);
            self.add_refusal(front);
        }
    }

    fn add_target(&mut self, front: &Front) {
        let Some(target) = front.target else {
            return;
        };
        let mut chain = self.names.chain(target);
        let (set, key, kind) = match front.address {
            FrontAddress::Cluster(ip) => (NAT_SERVICES, self.match_address(ip), "cluster IP"),
            FrontAddress::External(ip) => (NAT_SERVICES, self.match_address(ip), "external IP"),
            FrontAddress::LoadBalancer(ip) => {
                let key = self.match_address(ip);
                if self.has_firewall() {
                    chain = self.names.firewall();
                    let text = format!("traffic not accepted by {chain}");
                    let drop = self.comment(&text) + "-j DROP";
                    self.part
                        .elements
                        .insert((FILTER_FIREWALL, key.clone()), drop.into());
                }
                (NAT_SERVICES, key, "loadbalancer IP")
            }
            FrontAddress::NodePort(port) => (NAT_NODE_PORTS, self.match_port(port), "node port"),
        };
        let value = format!("{}-j {chain}", self.comment(kind));
        self.part.elements.insert((set, key), value.into());
    }

    fn add_refusal(&mut self, front: &Front) {
        let Some(refusal) = front.refusal else {
            return;
        };
        let (set, key) = match front.address {
            FrontAddress::Cluster(ip) => (FILTER_SERVICES, self.match_address(ip)),
            FrontAddress::External(ip) | FrontAddress::LoadBalancer(ip) => {
                (FILTER_EXTERNAL, self.match_address(ip))
            }
            FrontAddress::NodePort(port) => {
                let to_node = "-m addrtype --dst-type LOCAL";
                (
                    FILTER_EXTERNAL,
                    format!("{} {to_node}", self.match_port(port)),
                )
            }
        };
        let value = match refusal {
            Refusal::Reject => self.comment("has no endpoints") + self.reject_target(),
            Refusal::Drop => self.comment("has no local endpoints") + "-j DROP",
        };
        self.part.elements.insert((set, key), value.into());
    }

    /// Returns the target that refuses a connection at once. For TCP a reset: the kernel limits the
    /// rate of ICMP errors.
    fn reject_target(&self) -> &'static str {
        match self.port.protocol {
            Protocol::Tcp => "-j REJECT --reject-with tcp-reset",
            Protocol::Udp | Protocol::Sctp => "-j REJECT",
        }
    }

    fn add_policy_chains(&mut self) {
        for (target, endpoints) in self.port.policy_chains() {
            let mut rules = match target == self.port.internal_chain() {
                true => self.masquerade_rules(),
                false => Vec::new(),
            };
            rules.extend(self.pick_rules(endpoints));
            self.part.chains.insert(self.names.chain(target), rules);
        }
        for endpoint in self.port.endpoints() {
            let rules = self.endpoint_rules(endpoint);
            self.part
                .chains
                .insert(self.names.endpoint(endpoint), rules);
        }
    }

    /// Returns rules that masquerade connections to the cluster IPs.
    fn masquerade_rules(&self) -> Vec<String> {
        let sources = match &self.port.masquerade {
            Masquerade::None => return Vec::new(),
            Masquerade::All => String::new(),
            Masquerade::AllExcept(pods) => match_pods(pods, false) + " ",
        };
        let rule = |ip| format!("{} {sources}-j {MARK}", self.match_address(ip));
        self.port.cluster_ips().map(rule).collect()
    }

    /// Returns rules that pick one of the endpoints: by session affinity, else at random.
    fn pick_rules(&self, endpoints: &[SocketAddr]) -> Vec<String> {
        let mut rules = Vec::new();
        if let Some(seconds) = self.port.affinity {
            rules.extend(endpoints.iter().map(|endpoint| {
                let chain = self.names.endpoint(*endpoint);
                let recent = "--rcheck --reap --seconds";
                format!("-m recent --name {chain} {recent} {seconds} -j {chain}")
            }));
        }
        // Each rule takes its share of the connections that reach it, and the last one the rest.
        let left = (1..=endpoints.len()).rev();
        rules.extend(endpoints.iter().zip(left).map(|(endpoint, left)| {
            let chain = self.names.endpoint(*endpoint);
            match left {
                1 => format!("-j {chain}"),
                _ => format!(
                    "-m statistic --mode random --probability {:.10} -j {chain}",
                    1.0 / left as f64
                ),
            }
        }));
        rules
    }

    fn endpoint_rules(&self, endpoint: SocketAddr) -> Vec<String> {
        let protocol = self.port.protocol.nft_name();
        let remember = match self.port.affinity {
            Some(_) => format!("-m recent --name {} --set ", self.names.endpoint(endpoint)),
            None => String::new(),
        };
        vec![
            // Hairpin: a pod that reaches itself must see another source.
            format!("-s {} -j {MARK}", endpoint.ip()),
            format!("{remember}-p {protocol} -m {protocol} -j DNAT --to-destination {endpoint}"),
        ]
    }

    fn add_external_chain(&mut self) {
        let Some(external) = &self.port.external else {
            return;
        };
        let service = self.names.chain(Target::Cluster);
        let rules = match external {
            External::Cluster => vec![format!("-j {MARK}"), format!("-j {service}")],
            External::Local { pods } => {
                let pods = pods.as_ref().map(|pods| match_pods(pods, true));
                let local = (!self.port.local.is_empty()).then(|| self.names.chain(Target::Local));
                let pods = pods.map(|pods| format!("{pods} -j {service}"));
                pods.into_iter()
                    .chain([
                        format!("-m addrtype --src-type LOCAL -j {MARK}"),
                        format!("-m addrtype --src-type LOCAL -j {service}"),
                    ])
                    .chain(local.map(|chain| format!("-j {chain}")))
                    .collect()
            }
        };
        self.part
            .chains
            .insert(self.names.chain(Target::External), rules);
    }

    /// Adds the chain that translates connections from allowed sources.
    fn add_firewall_chain(&mut self) {
        let sources = self.port.allowed_sources.as_deref().unwrap_or_default();
        if self.has_firewall() {
            let chain = self.names.chain(Target::External);
            let rule = |range: &IpNet| format!("-s {range} -j {chain}");
            let rules = sources.iter().map(rule).collect();
            self.part.chains.insert(self.names.firewall(), rules);
        }
    }
}

/// Returns the match of connections from pods (`equal`), or from others.
fn match_pods(pods: &PodMatch, equal: bool) -> String {
    let not = if equal { "" } else { "! " };
    match pods {
        PodMatch::Interface(name) => format!("{not}-i {name}"),
        PodMatch::Prefix(prefix) => format!("{not}-i {prefix}+"),
        PodMatch::Range(range) => format!("{not}-s {range}"),
    }
}

/// Returns a comment of at most 200 characters; iptables allows 255. A name is part of it, which
/// must not end the text or its line.
fn comment(text: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || " -_./:".contains(*c);
    let text: String = text.chars().filter(is_plain).take(200).collect();
    format!("-m comment --comment \"{text}\" ")
}

pub(super) const SHARED_CHAINS: [(&str, &str); 10] = [
    ("filter", names::SERVICES),
    ("filter", names::EXTERNAL_SERVICES),
    ("filter", names::NODE_PORTS),
    ("filter", names::FORWARD),
    ("filter", names::PROXY_FIREWALL),
    ("filter", names::SOURCE_GUARD),
    ("nat", names::SERVICES),
    ("nat", names::NODE_PORTS),
    ("nat", names::POSTROUTING),
    ("nat", names::MARK),
];
