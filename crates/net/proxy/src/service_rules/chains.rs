//! The chains of one port of a Service in one family, with their rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::base_chains::{FIREWALL_IPS, MARK};
use crate::endpoints::Endpoint;
use crate::service_rules::build::Build;
use net_nft::Family;

impl Build<'_> {
    /// Adds the chains that pick an endpoint, and those of the endpoints. External connections need
    /// all endpoints even with the policy Local, for connections of this node and its pods.
    pub(super) fn add_policy_chains(&mut self, external: bool, cluster_ips: &[IpAddr]) {
        let uses_all = !self.port.internal_local || external;
        let uses_local = self.port.internal_local || (self.port.external_local && external);
        let mut used = BTreeSet::new();
        for (local_only, needed) in [(false, uses_all), (true, uses_local)] {
            let targets = self.policy_endpoints(local_only).to_vec();
            if !needed || targets.is_empty() {
                continue;
            }
            // The cluster IP leads to this chain, so its connections are masqueraded here; those
            // from outside come through the external chain.
            let internal = local_only == self.port.internal_local;
            let mut rules = if internal {
                self.masquerade_foreign_sources(cluster_ips)
            } else {
                Vec::new()
            };
            rules.extend(self.pick_rules(&targets));
            self.part
                .chains
                .insert(self.policy_chain(local_only).to_owned(), rules);
            used.extend(targets);
        }
        for endpoint in used {
            self.add_endpoint_chain(endpoint);
        }
    }

    /// Returns rules that masquerade connections to the cluster IPs from sources other than pods.
    fn masquerade_foreign_sources(&self, cluster_ips: &[IpAddr]) -> Vec<String> {
        let word = self.family.nft_name();
        let (protocol, port) = (self.port.protocol.nft_name(), self.port.port);
        let mut rules = Vec::new();
        for ip in cluster_ips {
            let to = format!("{word} daddr {ip} {protocol} dport {port}");
            // Without a range of pods it is unknown who is foreign, and nothing is masqueraded.
            if self.node.masquerade_all {
                rules.push(format!("{to} jump {MARK}"));
            } else if let Some(others) = self.node.match_pods(self.family, false) {
                rules.push(format!("{to} {others} jump {MARK}"));
            }
        }
        rules
    }

    pub(super) fn add_external_chain(&mut self) {
        let service = &self.chains.service;
        let mut rules = Vec::new();
        if self.port.external_local {
            // Connections of the node and its pods are internal: all endpoints are allowed.
            if let Some(pods) = self.node.match_pods(self.family, true) {
                rules.push(format!("{pods} goto {service}"));
            }
            rules.push(format!("fib saddr type local jump {MARK}"));
            rules.push(format!("fib saddr type local goto {service}"));
            if !self.here.is_empty() {
                rules.push(format!("goto {}", self.chains.local));
            }
        } else {
            // The reply must come back through this node, because another node may have the
            // endpoint.
            rules.push(format!("jump {MARK}"));
            rules.push(format!("goto {service}"));
        }
        self.part.chains.insert(self.chains.external.clone(), rules);
    }

    /// Returns rules that pick one of the endpoints: by session affinity, else at random.
    fn pick_rules(&self, targets: &[&Endpoint]) -> Vec<String> {
        let word = self.family.nft_name();
        let mut rules = Vec::new();
        if let Some(seconds) = self.port.affinity {
            for endpoint in targets {
                let set = self.affinity_set(endpoint, seconds);
                rules.push(format!(
                    "{word} saddr @{set} goto {}",
                    self.endpoint_name("endpoint", endpoint)
                ));
            }
        }
        // numgen picks at random for each connection; the conntrack entry keeps the choice for its
        // packets.
        let picks: Vec<String> = targets
            .iter()
            .enumerate()
            .map(|(n, endpoint)| format!("{n} : goto {}", self.endpoint_name("endpoint", endpoint)))
            .collect();
        if !picks.is_empty() {
            rules.push(format!(
                "numgen random mod {} vmap {{ {} }}",
                picks.len(),
                picks.join(", ")
            ));
        }
        rules
    }

    fn endpoint_name(&self, kind: &str, endpoint: &Endpoint) -> String {
        let address = endpoint.address.ip().to_string().replace(':', ".");
        net_nft::chain_name(
            kind,
            &format!(
                "{}__{address}/{}",
                self.port.readable(),
                endpoint.address.port()
            ),
        )
    }

    /// Returns the set of an endpoint's clients; another timeout makes another set.
    fn affinity_set(&self, endpoint: &Endpoint, seconds: u32) -> String {
        self.endpoint_name(&format!("affinity{seconds}"), endpoint)
    }

    fn add_endpoint_chain(&mut self, endpoint: &Endpoint) {
        let word = self.family.nft_name();
        let name = self.endpoint_name("endpoint", endpoint);
        // Hairpin: a pod that reaches itself must see another source, or its reply never leaves it.
        let mut rules = vec![format!(
            "{word} saddr {} jump {MARK}",
            endpoint.address.ip()
        )];
        if let Some(seconds) = self.port.affinity {
            let set = self.affinity_set(endpoint, seconds);
            // update and not add: each connection starts the timeout of its client again.
            rules.push(format!("update @{set} {{ {word} saddr }}"));
            let kind = self.family.address_type();
            self.part.sets.insert(
                set,
                format!("type {kind}; flags dynamic,timeout; timeout {seconds}s;"),
            );
        }
        rules.push(format!(
            "meta l4proto {} dnat to {}",
            self.port.protocol.nft_name(),
            endpoint.address
        ));
        self.part.chains.insert(name, rules);
    }

    pub(super) fn add_firewall(&mut self, balancer: &[IpAddr]) {
        let Some(all) = &self.port.source_ranges else {
            return;
        };
        let own = |range: &&IpNet| Family::of(range.addr()) == self.family;
        let ranges: Vec<&IpNet> = all.iter().filter(own).collect();
        // A range of all addresses restricts nothing.
        let open = ranges.iter().any(|range| range.prefix_len() == 0);
        if open || balancer.is_empty() {
            return;
        }
        let name = net_nft::chain_name("firewall", &self.port.readable());
        let word = self.family.nft_name();
        let mut sources: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        // A balancer's address is often a local one of the node, and then the source of the node's
        // own connections to it.
        let contains = |ip: &IpAddr| ranges.iter().any(|range| range.contains(ip));
        if self.node.node_addresses.iter().any(contains) {
            sources.extend(balancer.iter().map(ToString::to_string));
        }
        // Ranges of the other family alone allow no source of this one.
        let rule = match sources.as_slice() {
            [] => "drop".to_owned(),
            some => format!("{word} saddr != {{ {} }} drop", some.join(", ")),
        };
        self.part.chains.insert(name.clone(), vec![rule]);
        for ip in balancer {
            let key = format!(
                "{ip} . {} . {}",
                self.port.protocol.nft_name(),
                self.port.port
            );
            self.part
                .elements
                .insert((FIREWALL_IPS, key), format!("goto {name}"));
        }
    }
}
