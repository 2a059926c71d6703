//! A node with its pods and their sums.
//!
//! Invariant: `requested`, `non_zero` and `ports` are the sums over `pods`; only
//! [`NodeInfo::add_pod`] and [`NodeInfo::remove_pod`] change them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::host_ports::PortTable;
use crate::pod::PodInfo;
use crate::resources::Resources;
use api_semantics::selectors::Labels;

/// An image on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// Size in bytes.
    pub size: i64,
}

/// Images by name.
pub type Images = HashMap<Arc<str>, ImageState>;

/// A node and its pods.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// Name of the node.
    pub name: Arc<str>,
    /// The Node object; None if pods are known on a node that is not.
    pub node: Option<Arc<Node>>,
    /// Bound and assumed pods.
    pub pods: Vec<Arc<PodInfo>>,
    /// Number of pods with any affinity or anti-affinity.
    pub with_affinity: usize,
    /// Number of pods with required anti-affinity.
    pub with_required_anti_affinity: usize,
    /// Sum of the pods' requests.
    pub requested: Resources,
    /// Sum of the pods' requests for scoring.
    pub non_zero: Resources,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// Host ports in use.
    pub ports: PortTable,
    /// Images by name.
    pub images: Arc<Images>,
    /// Claims in use, as `namespace/name`, with the number of pods.
    pub claims: HashMap<String, usize>,
    /// Changes with the node and its pods, and is unique for each state. 0 for a node without pods.
    pub generation: u64,
}

/// Returns a unique number.
fn next_generation() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Numbers are unique in the process, not per node: a node that was deleted and created again
    // must not get a number under which counts of its former state are cached.
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl NodeInfo {
    /// Creates a node without pods.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Returns a node as queueing hints see it: without pods and images.
    pub fn without_pods(node: Arc<Node>) -> Self {
        let mut info = Self::new(node.metadata.name.as_deref().unwrap_or_default());
        info.allocatable = Resources::from_resource_list(
            node.status
                .as_ref()
                .and_then(|status| status.allocatable.as_ref()),
        );
        info.node = Some(node);
        info
    }

    /// Sets the Node object.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        self.allocatable =
            Resources::from_resource_list(status.and_then(|status| status.allocatable.as_ref()));
        let images = status
            .and_then(|status| status.images.as_deref())
            .unwrap_or_default();
        // A node lists an image under each of its tags and digests, and a pod may name any of them.
        let by_name = images.iter().flat_map(|image| {
            let state = ImageState {
                size: image.size_bytes.unwrap_or(0),
            };
            image
                .names
                .iter()
                .flatten()
                .map(move |name| (Arc::from(name.as_str()), state))
        });
        self.images = Arc::new(by_name.collect());
        self.node = Some(node);
        self.generation = next_generation();
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.non_zero.add(&pod.non_zero);
        pod.host_ports
            .iter()
            .for_each(|port| self.ports.add_port(port));
        for claim in claim_keys(&pod) {
            *self.claims.entry(claim).or_default() += 1;
        }
        // Counters, so that InterPodAffinity skips nodes without such pods. Most clusters have few
        // of them.
        self.with_affinity += usize::from(pod.has_affinity());
        self.with_required_anti_affinity += usize::from(!pod.required_anti_affinity.is_empty());
        self.pods.push(pod);
        self.generation = next_generation();
    }

    /// Removes a pod from the node; returns it if it was there.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| pod.uid() == uid)?;
        // The order of pods on a node means nothing, so the removal need not move the others.
        let pod = self.pods.swap_remove(at);
        self.generation = next_generation();
        self.requested.subtract(&pod.requests);
        self.non_zero.subtract(&pod.non_zero);
        pod.host_ports
            .iter()
            .for_each(|port| self.ports.remove_port(port));
        for claim in claim_keys(&pod) {
            if let Some(count) = self.claims.get_mut(&claim) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.claims.remove(&claim);
                }
            }
        }
        self.with_affinity -= usize::from(pod.has_affinity());
        self.with_required_anti_affinity -= usize::from(!pod.required_anti_affinity.is_empty());
        Some(pod)
    }

    /// Returns the node's labels.
    pub fn labels(&self) -> Option<&Labels> {
        self.node.as_ref()?.metadata.labels.as_ref()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels()?.get(key).map(String::as_str)
    }

    /// Returns the node's taints.
    pub fn taints(&self) -> &[Taint] {
        let spec = self.node.as_ref().and_then(|node| node.spec.as_ref());
        spec.and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default()
    }

    /// Returns whether the node is cordoned.
    pub fn is_unschedulable(&self) -> bool {
        let spec = self.node.as_ref().and_then(|node| node.spec.as_ref());
        spec.and_then(|spec| spec.unschedulable).unwrap_or(false)
    }
}

fn claim_keys(pod: &PodInfo) -> impl Iterator<Item = String> + '_ {
    let volumes = pod
        .spec()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    volumes.iter().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(format!("{}/{}", pod.namespace(), claim.claim_name))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::host_ports::HostPort;
    use serde_json::json;

    #[test]
    fn host_ports_conflict_by_address_and_protocol() {
        let port = |address: &str, protocol: &str| HostPort {
            address: address.into(),
            protocol: protocol.into(),
            port: 80,
        };
        let mut table = PortTable::default();
        table.add_port(&port("10.0.0.1", "TCP"));
        assert!(table.has_conflict(&port("0.0.0.0", "TCP")));
        assert!(table.has_conflict(&port("10.0.0.1", "TCP")));
        assert!(!table.has_conflict(&port("10.0.0.2", "TCP")));
        assert!(!table.has_conflict(&port("10.0.0.1", "UDP")));
        table.remove_port(&port("10.0.0.1", "TCP"));
        assert!(!table.has_conflict(&port("0.0.0.0", "TCP")));
    }

    #[test]
    fn sums_are_zero_after_the_last_pod_is_removed() {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}},
                "ports": [{"containerPort": 1, "hostPort": 2}]}]}
        }))
        .unwrap();
        let mut node = NodeInfo::new("n");
        node.add_pod(Arc::new(PodInfo::new(Arc::new(pod))));
        assert_eq!(
            (node.requested.milli_cpu, node.non_zero.milli_cpu),
            (1000, 1000)
        );
        assert!(node.remove_pod("u").is_some());
        assert_eq!((node.requested.milli_cpu, node.non_zero.memory), (0, 0));
    }

    #[test]
    fn claim_is_in_use_until_the_last_of_its_pods_is_removed() {
        let pod = |uid: &str| {
            let object = json!({"metadata": {"name": uid, "uid": uid, "namespace": "ns"}, "spec": {"containers": [],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
            Arc::new(PodInfo::new(Arc::new(
                serde_json::from_value(object).unwrap(),
            )))
        };
        let mut node = NodeInfo::new("n");
        node.add_pod(pod("a"));
        node.add_pod(pod("b"));
        assert_eq!(node.claims.get("ns/data"), Some(&2));
        node.remove_pod("a");
        assert_eq!(node.claims.get("ns/data"), Some(&1));
        node.remove_pod("b");
        assert!(node.claims.is_empty());
    }

    #[test]
    fn each_change_of_a_node_has_a_new_generation() {
        let mut node = NodeInfo::new("n");
        let mut seen = vec![node.generation];
        let object = json!({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": []}});
        node.add_pod(Arc::new(PodInfo::new(Arc::new(
            serde_json::from_value(object).unwrap(),
        ))));
        seen.push(node.generation);
        node.remove_pod("p");
        seen.push(node.generation);
        node.set_node(Arc::new(Node::default()));
        seen.push(node.generation);
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), 4, "{seen:?}");
    }
}
