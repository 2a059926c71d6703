//! Node IPAM: allocates a free subnet of the cluster's pod network to each node.

use std::collections::HashMap;
use std::sync::Arc;

use client::Event;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use serde_json::json;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, object_reference, wake,
};

pub use pool::{Pool, Range};

mod pool;

/// Returns the subnets of a node.
fn pod_cidrs(node: &Node) -> Vec<IpNet> {
    let Some(spec) = &node.spec else {
        return Vec::new();
    };
    let all = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    let mut found: Vec<IpNet> = all.filter_map(|c| c.parse().ok()).collect();
    found.dedup();
    found
}

/// The pools of all families and the subnets allocated from them. An allocation counts at once; the
/// node's spec replaces it when it is observed.
#[derive(Debug)]
struct Allocations {
    pools: Vec<Pool>,
    by_node: HashMap<String, Vec<IpNet>>,
}

impl Allocations {
    /// Creates pools of `ranges`, without the subnets that overlap `services`.
    fn new(ranges: &[Range], services: &[IpNet]) -> Self {
        let mut pools: Vec<_> = ranges.iter().map(|range| Pool::new(*range)).collect();
        for pool in &mut pools {
            // A pod could not be reached if a Service had the same address.
            services.iter().for_each(|net| pool.occupy(*net));
        }
        Self {
            pools,
            by_node: HashMap::new(),
        }
    }

    /// Records a node's subnets; a node without subnets keeps its allocation.
    fn observe_subnets(&mut self, name: &str, nets: Vec<IpNet>) {
        // The cache may still show the node without subnets although the patch with its allocation
        // is on the way.
        if nets.is_empty() || self.by_node.get(name) == Some(&nets) {
            return;
        }
        self.release(name);
        for pool in &mut self.pools {
            nets.iter().for_each(|net| pool.occupy(*net));
        }
        self.by_node.insert(name.to_owned(), nets);
    }

    fn release(&mut self, name: &str) {
        let nets = self.by_node.remove(name).unwrap_or_default();
        for pool in &mut self.pools {
            nets.iter().for_each(|net| pool.release(*net));
        }
    }

    /// Allocates a subnet from each pool; None if one of them is exhausted.
    fn allocate_subnets(&mut self, name: &str) -> Option<Vec<IpNet>> {
        // The same subnet again: an earlier patch may have succeeded although its response was
        // lost.
        if let Some(nets) = self.by_node.get(name) {
            return Some(nets.clone());
        }
        let nets = self
            .pools
            .iter_mut()
            .map(Pool::free)
            // Nothing is recorded if one family is exhausted, so no subnet leaks.
            .collect::<Option<Vec<_>>>()?;
        self.observe_subnets(name, nets.clone());
        Some(nets)
    }
}

struct Ipam {
    nodes: Cache<Node>,
    allocations: Arc<Mutex<Allocations>>,
}

/// Sets up node IPAM. Subnets that overlap the `services` ranges are not allocated.
pub fn add_node_ipam(setup: &mut Setup, ranges: &[Range], services: &[IpNet]) {
    let queue = Queue::new();
    let allocations = Arc::new(Mutex::new(Allocations::new(ranges, services)));
    let (waiting, books) = (queue.clone(), allocations.clone());
    let nodes = setup.informers.for_kind::<Node>().on_event(move |event| {
        let node = event.object();
        match event {
            Event::Deleted(_) => books.lock().release(node.name()),
            // Before the first reconcile every listed node passes here, so subnets of an earlier
            // term are not allocated twice.
            Event::Applied { .. } => books.lock().observe_subnets(node.name(), pod_cidrs(node)),
        }
        if pod_cidrs(node).is_empty() {
            wake::enqueue_object::<Node>(&waiting)(event);
        }
    });
    let nodes = nodes.cache();
    setup.add_reconciler("node-controller", 1, queue, Ipam { nodes, allocations });
}

impl Decide for Ipam {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(node) = self.nodes.get(key) else {
            return Vec::new();
        };
        if !pod_cidrs(&node).is_empty() {
            return Vec::new();
        }
        let Some(nets) = self.allocations.lock().allocate_subnets(key) else {
            let text = format!("Node {key} status is now: CIDRNotAvailable");
            return vec![
                Action::event(&object_reference(node.as_ref()), "CIDRNotAvailable", text),
                Action::Requeue(EXHAUSTED),
            ];
        };
        let texts: Vec<_> = nets.iter().map(IpNet::to_string).collect();
        let patch = json!({ "spec": { "podCIDR": texts.first(), "podCIDRs": texts } });
        vec![Action::strategic(Target::of(node.as_ref()), patch).ignore_absent()]
    }
}

/// Requeue delay of a node without a free subnet: other nodes may have been deleted.
const EXHAUSTED: std::time::Duration = std::time::Duration::from_secs(10);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn subnets_are_given_once_and_service_ranges_never() {
        let range = Range {
            cluster: "10.1.0.0/22".parse().unwrap(),
            mask: 24,
        };
        let mut all = Allocations::new(&[range], &["10.1.1.128/25".parse().unwrap()]);
        let mut next = |name: &str| all.allocate_subnets(name).map(|nets| nets[0].to_string());
        assert_eq!(next("a").as_deref(), Some("10.1.0.0/24"));
        assert_eq!(next("b").as_deref(), Some("10.1.2.0/24"));
        assert_eq!(
            next("a").as_deref(),
            Some("10.1.0.0/24"),
            "what is given stays"
        );
        assert_eq!(next("c").as_deref(), Some("10.1.3.0/24"));
        assert_eq!(next("d"), None);
        all.release("b");
        all.observe_subnets("a", vec!["10.1.2.0/24".parse().unwrap()]);
        assert_eq!(
            all.allocate_subnets("d").unwrap()[0].to_string(),
            "10.1.0.0/24"
        );
    }
}
