//! Objects for tests, from JSON.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_framework::{ClaimView, Cluster, NodeInfo, PodInfo};
use serde_json::{Value, json};

/// Builds a pod named `p` with the given spec fields.
pub(crate) fn build_pod(spec: Value) -> PodInfo {
    named_pod("p", json!({}), spec)
}

/// Builds a pod with a name, labels and spec fields.
pub(crate) fn named_pod(name: &str, labels: Value, mut spec: Value) -> PodInfo {
    if spec.get("containers").is_none() {
        spec["containers"] = json!([]);
    }
    let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}, "spec": spec});
    PodInfo::new(Arc::new(serde_json::from_value(pod).unwrap()))
}

/// Builds a pod that requests CPU (thousandths) and memory (bytes).
pub(crate) fn requesting_pod(name: &str, cpu: i64, memory: i64) -> PodInfo {
    let requests = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
    named_pod(
        name,
        json!({}),
        json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}),
    )
}

/// Builds a node with labels, spec and allocatable.
pub(crate) fn build_node(name: &str, labels: Value, spec: Value, allocatable: Value) -> NodeInfo {
    let object = json!({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}});
    let mut info = NodeInfo::new(name);
    info.set_node(Arc::new(serde_json::from_value(object).unwrap()));
    info
}

/// Builds a node with labels only, and room for 110 pods.
pub(crate) fn labelled_node(name: &str, labels: Value) -> NodeInfo {
    build_node(
        name,
        labels,
        json!({}),
        json!({"cpu": "4", "memory": "4Gi", "pods": "110"}),
    )
}

/// An empty cluster.
pub(crate) struct EmptyCluster;

impl ClaimView for EmptyCluster {
    fn persistent_volume_claim(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        None
    }

    fn persistent_volume(&self, _name: &str) -> Option<Arc<PersistentVolume>> {
        None
    }

    fn volumes_of_class(&self, _class: &str) -> Vec<Arc<PersistentVolume>> {
        Vec::new()
    }

    fn storage_class(&self, _name: &str) -> Option<Arc<StorageClass>> {
        None
    }
}

/// A cluster with volumes only.
pub(crate) struct VolumeList(pub(crate) Vec<Arc<PersistentVolume>>);

impl ClaimView for VolumeList {
    fn persistent_volume_claim(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        None
    }

    fn persistent_volume(&self, _name: &str) -> Option<Arc<PersistentVolume>> {
        None
    }

    fn volumes_of_class(&self, _class: &str) -> Vec<Arc<PersistentVolume>> {
        self.0.clone()
    }

    fn storage_class(&self, _name: &str) -> Option<Arc<StorageClass>> {
        None
    }
}

impl Cluster for EmptyCluster {
    fn disruption_budgets(&self, _namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        Vec::new()
    }

    fn claim_view(&self) -> &dyn ClaimView {
        self
    }

    fn service_selectors(
        &self,
        _: &str,
        _: &api_semantics::selectors::Labels,
    ) -> Vec<api_semantics::selectors::Labels> {
        Vec::new()
    }
}

/// A cluster with claims, volumes, classes, budgets and selectors of Services.
#[derive(Default)]
pub(crate) struct TestCluster {
    pub(crate) claims: Vec<Value>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) classes: Vec<Value>,
    pub(crate) budgets: Vec<Value>,
    pub(crate) service_selectors: Vec<api_semantics::selectors::Labels>,
}

fn find_by_name<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["metadata"]["name"] == name)
}

impl ClaimView for TestCluster {
    fn persistent_volume_claim(
        &self,
        _namespace: &str,
        name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        find_by_name(&self.claims, name)
            .map(|found| Arc::new(serde_json::from_value(found.clone()).unwrap()))
    }

    fn persistent_volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        find_by_name(&self.volumes, name)
            .map(|found| Arc::new(serde_json::from_value(found.clone()).unwrap()))
    }

    fn volumes_of_class(&self, class: &str) -> Vec<Arc<PersistentVolume>> {
        let of_class = self
            .volumes
            .iter()
            .filter(|volume| volume["spec"]["storageClassName"] == class);
        of_class
            .map(|volume| Arc::new(serde_json::from_value(volume.clone()).unwrap()))
            .collect()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        find_by_name(&self.classes, name)
            .map(|found| Arc::new(serde_json::from_value(found.clone()).unwrap()))
    }
}

impl Cluster for TestCluster {
    fn disruption_budgets(&self, _namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        let budget = |value: &Value| Arc::new(serde_json::from_value(value.clone()).unwrap());
        self.budgets.iter().map(budget).collect()
    }

    fn claim_view(&self) -> &dyn ClaimView {
        self
    }

    fn service_selectors(
        &self,
        _: &str,
        _: &api_semantics::selectors::Labels,
    ) -> Vec<api_semantics::selectors::Labels> {
        self.service_selectors.clone()
    }
}

/// Returns an empty cluster, shared.
pub(crate) fn empty_cluster() -> Arc<dyn Cluster> {
    Arc::new(EmptyCluster)
}
