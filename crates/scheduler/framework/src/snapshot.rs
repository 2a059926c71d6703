//! The cluster as one attempt sees it: immutable.
//!
//! Nodes sit in one array that a filter walks from front to back; taking a snapshot after a change replaces
//! only the entries that changed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::node::NodeInfo;
use crate::selector::{Labels, labels_match};

/// Access to claims and volumes, for plugins about storage.
pub trait ClaimView: Send + Sync {
    /// A claim by namespace and name.
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>>;
    /// A volume by name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// All volumes.
    fn volumes(&self) -> Vec<Arc<PersistentVolume>>;
    /// A class by name.
    fn class(&self, name: &str) -> Option<Arc<StorageClass>>;
}

/// Labels of those objects that select the pods of a workload, and other views of the cluster.
pub trait Cluster: Send + Sync {
    /// Budgets of a namespace.
    fn budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>>;
    /// Claims and volumes.
    fn claims(&self) -> &dyn ClaimView;
    /// Label selectors of the Services that select pods with these labels.
    fn service_selectors(&self, namespace: &str, labels: &Labels) -> Vec<Labels>;
}

/// Nodes, their pods, and the labels of namespaces.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// The nodes.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// Places in `nodes` by name.
    pub by_name: Arc<HashMap<Arc<str>, usize>>,
    /// Labels of namespaces by name.
    pub namespaces: Arc<HashMap<String, Labels>>,
    /// Number of nodes that have an image, by image name.
    pub image_spread: Arc<HashMap<String, usize>>,
}

impl Snapshot {
    /// A snapshot of these nodes.
    pub fn of(nodes: Vec<NodeInfo>) -> Self {
        let nodes: Vec<Arc<NodeInfo>> = nodes.into_iter().map(Arc::new).collect();
        let mut snapshot = Self { nodes, ..Self::default() };
        snapshot.reindex();
        snapshot.count_images();
        snapshot
    }

    /// Sets `by_name` from `nodes`.
    pub fn reindex(&mut self) {
        let entry = |(at, node): (usize, &Arc<NodeInfo>)| (Arc::clone(&node.name), at);
        self.by_name = Arc::new(self.nodes.iter().enumerate().map(entry).collect());
    }

    /// Sets `image_spread` from `nodes`.
    pub fn count_images(&mut self) {
        let mut spread = HashMap::new();
        for name in self.nodes.iter().flat_map(|node| node.images.keys()) {
            *spread.entry(name.clone()).or_default() += 1;
        }
        self.image_spread = Arc::new(spread);
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.get(*self.by_name.get(name)?)
    }

    /// Whether a namespace has labels that a selector wants.
    pub fn namespace_matches(
        &self,
        namespace: &str,
        selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    ) -> bool {
        labels_match(Some(selector), self.namespaces.get(namespace))
    }
}
