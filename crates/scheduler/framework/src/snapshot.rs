//! An immutable snapshot of the cluster for one attempt.
//!
//! Nodes are in one array, which a filter walks; a new snapshot replaces only the entries that
//! changed.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_devices::{DeviceView, NoDevices};

use crate::node::{Images, NodeInfo};
use crate::waiting::WaitingPods;
use api_semantics::selectors::{Labels, labels_match};

/// Read access to claims and volumes, for storage plugins.
pub trait ClaimView: Send + Sync {
    /// Returns a claim by namespace and name.
    fn persistent_volume_claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>>;
    /// Returns a volume by name.
    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// Returns the volumes of a storage class.
    fn volumes_of_class(&self, class: &str) -> Vec<Arc<PersistentVolume>>;
    /// Returns a storage class by name.
    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>>;
}

/// Read access to objects other than nodes and pods.
pub trait Cluster: Send + Sync {
    /// Returns the disruption budgets of a namespace.
    fn disruption_budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>>;
    /// Returns read access to claims and volumes.
    fn claim_view(&self) -> &dyn ClaimView;
    /// Returns label selectors of the Services that select pods with these labels.
    fn service_selectors(&self, namespace: &str, labels: &Labels) -> Vec<Labels>;

    /// Returns read access to ResourceClaims and devices.
    fn device_view(&self) -> &dyn DeviceView {
        static NO_DEVICES: LazyLock<NoDevices> = LazyLock::new(NoDevices::default);
        &*NO_DEVICES
    }

    /// Returns the pods in a Permit wait, for a plugin that decides later.
    fn waiting_pods(&self) -> WaitingPods {
        WaitingPods::default()
    }
}

/// Nodes, their pods, and the labels of namespaces.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// The nodes.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// Indexes into `nodes` by name.
    pub by_name: Arc<HashMap<Arc<str>, usize>>,
    /// Labels of namespaces by name.
    pub namespaces: Arc<HashMap<String, Labels>>,
    /// Number of nodes that have an image, by image name.
    pub image_spread: Arc<HashMap<Arc<str>, usize>>,
}

impl Snapshot {
    /// Creates a snapshot of these nodes.
    pub fn from_nodes(nodes: Vec<NodeInfo>) -> Self {
        let mut snapshot = Self::default();
        nodes
            .into_iter()
            .for_each(|node| snapshot.push_node(Arc::new(node)));
        snapshot
    }

    /// Adds a node with a new name.
    pub fn push_node(&mut self, node: Arc<NodeInfo>) {
        // Copied only while an attempt holds the former snapshot.
        Arc::make_mut(&mut self.by_name).insert(node.name.clone(), self.nodes.len());
        self.change_images(&Images::default(), &node.images);
        self.nodes.push(node);
    }

    /// Removes a node; the last one moves to its index.
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<NodeInfo>> {
        let at = Arc::make_mut(&mut self.by_name)
            .remove(name)
            .filter(|at| *at < self.nodes.len())?;
        // A removal that kept the order would move thousands of entries. The walk over nodes needs
        // no particular order.
        let node = self.nodes.swap_remove(at);
        if let Some(moved) = self.nodes.get(at) {
            Arc::make_mut(&mut self.by_name).insert(moved.name.clone(), at);
        }
        self.change_images(&node.images, &Images::default());
        Some(node)
    }

    /// Updates `image_spread` for a node whose images changed.
    pub fn change_images(&mut self, before: &Images, after: &Images) {
        // Most updates of a node change no image; the map of all images is then not copied.
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
            *spread.entry(name.clone()).or_default() += 1;
        }
    }

    /// Returns a node by name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.get(*self.by_name.get(name)?)
    }

    /// Returns whether a namespace's labels match a selector.
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
        let images: Vec<_> = images
            .iter()
            .map(|image| json!({"names": [image], "sizeBytes": 1}))
            .collect();
        let object = json!({"metadata": {"name": name}, "status": {"images": images}});
        let mut info = NodeInfo::new(name);
        info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
        info
    }

    #[test]
    fn index_and_image_counts_follow_single_changes() {
        let mut snapshot = Snapshot::from_nodes(vec![
            node("a", &["x", "y"]),
            node("b", &["x"]),
            node("c", &["x"]),
        ]);
        let spread = |snapshot: &Snapshot, image: &str| snapshot.image_spread.get(image).copied();
        assert_eq!(
            (spread(&snapshot, "x"), spread(&snapshot, "y")),
            (Some(3), Some(1))
        );
        snapshot.change_images(
            &node("a", &["x", "y"]).images,
            &node("a", &["y", "z"]).images,
        );
        assert_eq!(
            (spread(&snapshot, "x"), spread(&snapshot, "z")),
            (Some(2), Some(1))
        );
        assert!(snapshot.remove_node("b").is_some() && snapshot.remove_node("b").is_none());
        assert_eq!(spread(&snapshot, "x"), Some(1));
        for name in ["a", "c"] {
            assert_eq!(&*snapshot.node(name).unwrap().name, name);
        }
    }
}
