//! The cluster as one attempt sees it: immutable.
//!
//! Nodes sit in one array that a filter walks from front to back; taking a snapshot after a change replaces
//! only the entries that changed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;

use crate::node::{Images, NodeInfo};
use crate::selector::{Labels, labels_match};
use crate::waiting::WaitingPods;

/// Access to claims and volumes, for plugins about storage.
pub trait ClaimView: Send + Sync {
    /// A claim by namespace and name.
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>>;
    /// A volume by name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// Volumes of a storage class.
    fn volumes_of_class(&self, class: &str) -> Vec<Arc<PersistentVolume>>;
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

    /// Pods that Permit plugins keep waiting, for a plugin that decides later than it was asked.
    fn waiting_pods(&self) -> WaitingPods {
        WaitingPods::default()
    }
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
    pub image_spread: Arc<HashMap<Arc<str>, usize>>,
}

impl Snapshot {
    /// A snapshot of these nodes.
    pub fn of(nodes: Vec<NodeInfo>) -> Self {
        let mut snapshot = Self::default();
        nodes.into_iter().for_each(|node| snapshot.push(Arc::new(node)));
        snapshot
    }

    /// Adds a node whose name is new.
    pub fn push(&mut self, node: Arc<NodeInfo>) {
        Arc::make_mut(&mut self.by_name).insert(Arc::clone(&node.name), self.nodes.len());
        self.change_images(&Images::default(), &node.images);
        self.nodes.push(node);
    }

    /// Takes a node out; the last one moves to its place.
    pub fn remove(&mut self, name: &str) -> Option<Arc<NodeInfo>> {
        let at = Arc::make_mut(&mut self.by_name).remove(name).filter(|at| *at < self.nodes.len())?;
        let node = self.nodes.swap_remove(at);
        if let Some(moved) = self.nodes.get(at) {
            Arc::make_mut(&mut self.by_name).insert(Arc::clone(&moved.name), at);
        }
        self.change_images(&node.images, &Images::default());
        Some(node)
    }

    /// Corrects `image_spread` for a node whose images changed.
    pub fn change_images(&mut self, before: &Images, after: &Images) {
        if before == after {
            return;
        }
        let spread = Arc::make_mut(&mut self.image_spread);
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            match spread.get_mut(name) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(spread.remove(name)),
            }
        }
        for name in after.keys().filter(|name| !before.contains_key(*name)) {
            *spread.entry(Arc::clone(name)).or_default() += 1;
        }
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.get(*self.by_name.get(name)?)
    }

    /// Returns true if a namespace has labels that a selector wants.
    pub fn namespace_matches(
        &self,
        namespace: &str,
        selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    ) -> bool {
        labels_match(Some(selector), self.namespaces.get(namespace))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn node(name: &str, images: &[&str]) -> NodeInfo {
        let images: Vec<_> = images.iter().map(|image| json!({"names": [image], "sizeBytes": 1})).collect();
        let object = json!({"metadata": {"name": name}, "status": {"images": images}});
        let mut info = NodeInfo::new(name);
        info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
        info
    }

    #[test]
    fn index_and_image_counts_follow_single_changes() {
        let mut snapshot = Snapshot::of(vec![node("a", &["x", "y"]), node("b", &["x"]), node("c", &["x"])]);
        let spread = |snapshot: &Snapshot, image: &str| snapshot.image_spread.get(image).copied();
        assert_eq!((spread(&snapshot, "x"), spread(&snapshot, "y")), (Some(3), Some(1)));
        snapshot.change_images(&node("a", &["x", "y"]).images, &node("a", &["y", "z"]).images);
        assert_eq!((spread(&snapshot, "x"), spread(&snapshot, "z")), (Some(2), Some(1)));
        assert!(snapshot.remove("b").is_some() && snapshot.remove("b").is_none());
        assert_eq!(spread(&snapshot, "x"), Some(1));
        for name in ["a", "c"] {
            assert_eq!(&*snapshot.node(name).unwrap().name, name);
        }
    }
}
