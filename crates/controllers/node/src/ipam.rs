//! Pod networks of nodes: each gets a free subnet of the cluster's range.

use std::collections::{HashMap, HashSet};

use client::Event;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use controllers_runtime::{Action, Cache, Decide, Queue, Setup, Target, reference, wake};

/// A cluster range and the size of a node's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The cluster's range (`--cluster-cidr`).
    pub cluster: IpNet,
    /// Prefix length of a node's subnet (`--node-cidr-mask-size`).
    pub mask: u8,
}

impl Range {
    /// The first subnet that overlaps nothing in `taken`.
    pub fn free(&self, taken: &HashSet<IpNet>) -> Option<IpNet> {
        let overlaps = |net: &IpNet| taken.iter().any(|t| t.contains(net) || net.contains(t));
        self.cluster.subnets(self.mask).ok()?.find(|net| !overlaps(net))
    }
}

/// The subnets a node has.
fn held(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    let mut found: Vec<IpNet> = all.filter_map(|c| c.parse().ok()).collect();
    found.dedup();
    found
}

struct Ipam {
    nodes: Cache<Node>,
    ranges: Vec<Range>,
    /// What was given out and may not be in the cache yet.
    given: Mutex<HashMap<String, Vec<IpNet>>>,
}

/// Sets up node IPAM.
pub fn ipam(setup: &mut Setup, ranges: Vec<Range>) {
    let queue = Queue::new();
    let waiting = queue.clone();
    let nodes = setup.informers.of::<Node>().on(move |event| {
        let gone = matches!(event, Event::Deleted(_));
        if gone || held(event.object()).is_empty() {
            wake::itself::<Node>(&waiting)(event);
        }
    });
    let nodes = nodes.cache();
    setup.decide("node-controller", 1, queue, Ipam { nodes, ranges, given: Mutex::default() });
}

impl Ipam {
    fn allocate(&self, name: &str) -> Option<Vec<IpNet>> {
        let mut given = self.given.lock();
        if let Some(nets) = given.get(name) {
            return Some(nets.clone());
        }
        let mut taken: HashSet<IpNet> = self.nodes.list().iter().flat_map(|n| held(n)).collect();
        taken.extend(given.values().flatten());
        let mut nets = Vec::new();
        for range in &self.ranges {
            let net = range.free(&taken)?;
            nets.push(net);
        }
        given.insert(name.to_owned(), nets.clone());
        Some(nets)
    }
}

impl Decide for Ipam {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(node) = self.nodes.get(key) else {
            self.given.lock().remove(key);
            return Vec::new();
        };
        if !held(&node).is_empty() {
            return Vec::new();
        }
        let Some(nets) = self.allocate(key) else {
            let text = format!("Node {key} status is now: CIDRNotAvailable");
            return vec![Action::event(&reference(node.as_ref()), "CIDRNotAvailable", text)];
        };
        let texts: Vec<_> = nets.iter().map(IpNet::to_string).collect();
        let patch = json!({ "spec": { "podCIDR": texts.first(), "podCIDRs": texts } });
        vec![Action::strategic(Target::of(node.as_ref()), patch).ignore_absent()]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn first_free_subnet() {
        let range = Range { cluster: "10.1.0.0/22".parse().unwrap(), mask: 24 };
        let mut taken = HashSet::new();
        for expect in ["10.1.0.0/24", "10.1.1.0/24", "10.1.2.0/24", "10.1.3.0/24"] {
            let net = range.free(&taken).unwrap();
            assert_eq!(net.to_string(), expect);
            taken.insert(net);
        }
        assert_eq!(range.free(&taken), None);
        let wide = HashSet::from(["10.1.0.0/23".parse().unwrap()]);
        assert_eq!(range.free(&wide).unwrap().to_string(), "10.1.2.0/24");
    }
}
