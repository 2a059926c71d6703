//! Renders the rules of a Service for nftables. The maps of the base chains lead to them.
//!
//! Most Services have no chain of their own, only elements (`picks.rs`). The kernel follows all
//! chains that a packet can reach when a rule or verdict changes, and nft lists all of them, so
//! that chains make every change slow.
//!
//! Session affinity, the external policy Local, and many endpoints or addresses need a `service`,
//! `local` and `external` chain for the port; restricted sources a `firewall` chain; session
//! affinity also an `endpoint` chain for each endpoint.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use net_nft::Family;

use crate::base_chains::{
    CLUSTER_IPS, FIREWALL_IPS, HAIRPINS, NO_ENDPOINT_NODE_PORTS, NO_ENDPOINT_SERVICES, REJECT,
    SERVICE_IPS, SERVICE_NODE_PORTS,
};
use crate::part::{ElementValue, Part};
use crate::picks::{
    MARK, MAX_PORT_PICKS, MAX_SHARED_ENDPOINTS, PickKind, mark_foreign, match_pods,
};
use crate::service_rules::{
    External, Front, FrontAddress, PortRules, Refusal, ServiceRules, Target,
};

/// Endpoints that a Service's own chain picks by a rule each. More are picked by a map without a
/// name, for each of which the kernel searches the whole transaction: with a map for each of 10,000
/// Services, an installation takes minutes.
const MAX_SINGLE_PICKS: usize = 8;

/// Returns the rules of a Service in the table of a family.
#[must_use]
pub fn render_nftables(rules: &ServiceRules, family: Family) -> Part {
    let mut part = Part::default();
    for port in rules.ports.iter().filter(|port| port.family == family) {
        let mut port = Renderer::new(port, &mut part);
        port.add_fronts();
        if port.has_chains() {
            port.add_policy_chains();
            port.add_external_chain();
        }
        port.add_hairpins();
        port.add_firewall();
    }
    part
}

/// Renders one port.
struct Renderer<'a> {
    port: &'a PortRules,
    part: &'a mut Part,
    readable: String,
    /// nft's name of the family.
    word: &'static str,
}

impl<'a> Renderer<'a> {
    fn new(port: &'a PortRules, part: &'a mut Part) -> Self {
        Self {
            port,
            part,
            readable: port.readable(),
            word: port.family.nft_name(),
        }
    }

    fn chain(&self, target: Target) -> String {
        let kind = match target {
            Target::Cluster => "service",
            Target::Local => "local",
            Target::External => "external",
        };
        net_nft::chain_name(kind, &self.readable)
    }

    /// Returns whether the port has chains of its own.
    fn has_chains(&self) -> bool {
        let is_local = matches!(self.port.external, Some(External::Local { .. }));
        is_local || !self.can_share(&self.port.cluster) || !self.can_share(&self.port.local)
    }

    fn add_element(&mut self, set: &'static str, key: String, value: String) {
        self.part.elements.insert((set, key), value.into());
    }

    fn add_fronts(&mut self) {
        for front in &self.port.fronts {
            if let FrontAddress::Cluster(ip) = front.address {
                self.add_element(CLUSTER_IPS, ip.to_string(), String::new());
            }
            self.add_front(front);
        }
    }

    fn add_front(&mut self, front: &Front) {
        let protocol = self.port.protocol.nft_name();
        let (services, without, key) = match front.address {
            FrontAddress::NodePort(port) => (
                SERVICE_NODE_PORTS,
                NO_ENDPOINT_NODE_PORTS,
                format!("{protocol} . {port}"),
            ),
            FrontAddress::Cluster(ip)
            | FrontAddress::External(ip)
            | FrontAddress::LoadBalancer(ip) => {
                (SERVICE_IPS, NO_ENDPOINT_SERVICES, self.address_key(ip))
            }
        };
        if let Some(target) = front.target {
            let value = match self.find_pick(front, target) {
                Some((kind, endpoints)) => pick_from_map(kind, &key, endpoints),
                None => format!("goto {}", self.chain(target)).into(),
            };
            self.part.elements.insert((services, key.clone()), value);
        }
        if let Some(refusal) = front.refusal {
            let verdict = match refusal {
                Refusal::Reject => format!("goto {REJECT}"),
                Refusal::Drop => "drop".to_owned(),
            };
            self.add_element(without, key, verdict);
        }
    }

    fn address_key(&self, ip: IpAddr) -> String {
        let (protocol, port) = (self.port.protocol.nft_name(), self.port.port);
        format!("{ip} . {protocol} . {port}")
    }

    /// Returns the kind of the shared chains that an address leads to, with its endpoints; None if
    /// it leads to a chain of the port.
    fn find_pick(&self, front: &Front, target: Target) -> Option<(PickKind, &'a [SocketAddr])> {
        let kind = match front.address {
            FrontAddress::Cluster(_) => PickKind::Cluster,
            FrontAddress::External(_) | FrontAddress::LoadBalancer(_) => PickKind::External,
            FrontAddress::NodePort(_) => PickKind::NodePort,
        };
        let endpoints = match (target, &self.port.external) {
            (Target::Cluster, _) | (Target::External, Some(External::Cluster)) => {
                &self.port.cluster
            }
            (Target::Local, _) => &self.port.local,
            (Target::External, _) => return None,
        };
        self.can_share(endpoints).then_some((kind, endpoints))
    }

    /// Returns whether shared chains can pick one of these endpoints.
    fn can_share(&self, endpoints: &[SocketAddr]) -> bool {
        let picks = endpoints.len().saturating_mul(self.port.fronts.len());
        self.port.affinity.is_none()
            && endpoints.len() <= MAX_SHARED_ENDPOINTS
            && picks <= MAX_PORT_PICKS
    }

    /// Adds the chains that pick an endpoint, and those of the endpoints.
    fn add_policy_chains(&mut self) {
        for (target, endpoints) in self.port.policy_chains() {
            // If the cluster IP leads to this chain, its connections are masqueraded here; those
            // from outside come through the external chain.
            let is_internal = target == self.port.internal_chain();
            let mut rules = match is_internal && !self.can_share(endpoints) {
                true => self.masquerade_rules(),
                false => Vec::new(),
            };
            rules.extend(self.pick_rules(endpoints));
            let chain = self.chain(target);
            self.part.chains.insert(chain, rules);
        }
        if let Some(seconds) = self.port.affinity {
            for endpoint in self.port.endpoints() {
                self.add_endpoint_chain(endpoint, seconds);
            }
        }
    }

    /// Adds the endpoints that may connect to themselves. With session affinity, the chain of an
    /// endpoint masquerades such a connection.
    fn add_hairpins(&mut self) {
        if self.port.affinity.is_none() {
            for ip in &self.port.hairpins {
                self.add_element(HAIRPINS, format!("{ip} . {ip}"), String::new());
            }
        }
    }

    /// Returns rules that masquerade connections to the cluster IPs.
    fn masquerade_rules(&self) -> Vec<String> {
        let Some(mark) = mark_foreign(&self.port.masquerade, self.word) else {
            return Vec::new();
        };
        let (protocol, port, word) = (self.port.protocol.nft_name(), self.port.port, self.word);
        let rule = |ip| format!("{word} daddr {ip} {protocol} dport {port} {mark}");
        self.port.cluster_ips().map(rule).collect()
    }

    /// Returns rules that pick one of the endpoints: by session affinity, else at random.
    fn pick_rules(&self, endpoints: &[SocketAddr]) -> Vec<String> {
        let mut rules = Vec::new();
        if let Some(seconds) = self.port.affinity {
            rules.extend(endpoints.iter().map(|endpoint| {
                let set = self.affinity_set(*endpoint, seconds);
                format!("{} saddr @{set} {}", self.word, self.use_endpoint(endpoint))
            }));
        }
        // numgen picks at random for each connection; the conntrack entry keeps the choice for its
        // packets.
        if endpoints.len() > MAX_SINGLE_PICKS {
            rules.push(self.pick_from_own_map(endpoints));
            return rules;
        }
        // Each rule takes its share of the connections that reach it, and the last one the rest.
        let left = (1..=endpoints.len()).rev();
        rules.extend(
            endpoints
                .iter()
                .zip(left)
                .map(|(endpoint, left)| match left {
                    1 => self.use_endpoint(endpoint),
                    _ => format!("numgen random mod {left} 0 {}", self.use_endpoint(endpoint)),
                }),
        );
        rules
    }

    /// Returns the statement that translates a connection.
    fn use_endpoint(&self, endpoint: &SocketAddr) -> String {
        match self.port.affinity {
            Some(_) => format!("goto {}", self.endpoint_name("endpoint", *endpoint)),
            None => self.translate(*endpoint),
        }
    }

    fn translate(&self, endpoint: SocketAddr) -> String {
        let protocol = self.port.protocol.nft_name();
        format!("meta l4proto {protocol} dnat to {endpoint}")
    }

    fn pick_from_own_map(&self, endpoints: &[SocketAddr]) -> String {
        let pick = |endpoint: &SocketAddr| match self.port.affinity {
            Some(_) => self.use_endpoint(endpoint),
            None => format!("{} . {}", endpoint.ip(), endpoint.port()),
        };
        let picks = endpoints.iter().enumerate();
        let picks: Vec<String> = picks.map(|(n, e)| format!("{n} : {}", pick(e))).collect();
        let (count, picks) = (picks.len(), picks.join(", "));
        match self.port.affinity {
            Some(_) => format!("numgen random mod {count} vmap {{ {picks} }}"),
            None => format!(
                "meta l4proto {} dnat {} to numgen random mod {count} map {{ {picks} }}",
                self.port.protocol.nft_name(),
                self.word
            ),
        }
    }

    fn endpoint_name(&self, kind: &str, endpoint: SocketAddr) -> String {
        let address = endpoint.ip().to_string().replace(':', ".");
        let name = format!("{}__{address}/{}", self.readable, endpoint.port());
        net_nft::chain_name(kind, &name)
    }

    /// Returns the set of an endpoint's clients; another timeout makes another set.
    fn affinity_set(&self, endpoint: SocketAddr, seconds: u32) -> String {
        self.endpoint_name(&format!("affinity{seconds}"), endpoint)
    }

    fn add_endpoint_chain(&mut self, endpoint: SocketAddr, seconds: u32) {
        let word = self.word;
        let set = self.affinity_set(endpoint, seconds);
        let rules = vec![
            // Hairpin: a pod that reaches itself must see another source, or its reply never
            // leaves it.
            format!("{word} saddr {} jump {MARK}", endpoint.ip()),
            // update and not add: each connection starts the timeout of its client again.
            format!("update @{set} {{ {word} saddr }}"),
            self.translate(endpoint),
        ];
        let kind = self.port.family.address_type();
        let declaration = format!("type {kind}; flags dynamic,timeout; timeout {seconds}s;");
        self.part.sets.insert(set, declaration);
        let name = self.endpoint_name("endpoint", endpoint);
        self.part.chains.insert(name, rules);
    }

    fn add_external_chain(&mut self) {
        let Some(external) = &self.port.external else {
            return;
        };
        let service = self.chain(Target::Cluster);
        let mut rules = Vec::new();
        match external {
            External::Cluster => {
                rules.push(format!("jump {MARK}"));
                rules.push(format!("goto {service}"));
            }
            External::Local { pods } => {
                if let Some(pods) = pods {
                    let pods = match_pods(pods, self.word, true);
                    rules.push(format!("{pods} goto {service}"));
                }
                rules.push(format!("fib saddr type local jump {MARK}"));
                rules.push(format!("fib saddr type local goto {service}"));
                if !self.port.local.is_empty() {
                    rules.push(format!("goto {}", self.chain(Target::Local)));
                }
            }
        }
        let name = self.chain(Target::External);
        self.part.chains.insert(name, rules);
    }

    fn add_firewall(&mut self) {
        let Some(sources) = &self.port.allowed_sources else {
            return;
        };
        let sources: Vec<String> = sources.iter().map(write_range).collect();
        // Ranges of the other family alone allow no source of this one.
        let rule = match sources.as_slice() {
            [] => "drop".to_owned(),
            some => format!("{} saddr != {{ {} }} drop", self.word, some.join(", ")),
        };
        let name = net_nft::chain_name("firewall", &self.readable);
        for front in &self.port.fronts {
            if let FrontAddress::LoadBalancer(ip) = front.address {
                let key = self.address_key(ip);
                self.add_element(FIREWALL_IPS, key, format!("goto {name}"));
            }
        }
        self.part.chains.insert(name, vec![rule]);
    }
}

/// Returns the value of an address whose endpoints are in a shared map.
fn pick_from_map(kind: PickKind, key: &str, endpoints: &[SocketAddr]) -> ElementValue {
    let dependents = endpoints.iter().enumerate().map(|(number, endpoint)| {
        let target = format!("{} . {}", endpoint.ip(), endpoint.port());
        ((kind.map(), format!("{key} . {number}")), target)
    });
    ElementValue {
        verdict: format!("goto {}", kind.chain(endpoints.len())),
        dependents: dependents.collect(),
    }
}

fn write_range(range: &IpNet) -> String {
    match range.prefix_len() == range.max_prefix_len() {
        true => range.addr().to_string(),
        false => range.to_string(),
    }
}
