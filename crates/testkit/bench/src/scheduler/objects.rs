//! Nodes, pods and volumes of a made-up cluster.

use std::sync::Arc;

use api_semantics::selectors::Labels;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_core::cache::Cache;
use scheduler_framework::{ClaimView, Cluster, PodInfo, Snapshot};
use serde_json::{Result, Value, json};

/// Returns the node `n{at}`, in one of three zones.
pub fn node(at: usize, images: &[Value]) -> Result<Arc<Node>> {
    let labels = json!({"kubernetes.io/hostname": format!("n{at}"), "topology.kubernetes.io/zone": format!("z{}", at % 3)});
    serde_json::from_value(
        json!({"metadata": {"name": format!("n{at}"), "labels": labels},
        "status": {"images": images, "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"}}}),
    )
}

/// Returns 50 images that every node has, and `extra` others.
pub fn images(extra: usize) -> Vec<Value> {
    let image = |at: usize| json!({"names": [format!("registry.example/team/image-{at}:v1")], "sizeBytes": 1 << 20});
    (0..50)
        .map(image)
        .chain((0..extra).map(|at| image(1000 + at)))
        .collect()
}

/// Returns a replica of one workload that requests `cpu`.
pub fn pod(name: &str, cpu: &str, mut spec: Value) -> Result<Arc<PodInfo>> {
    spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    let pod: Pod = serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name,
        "labels": {"app": "web"}, "ownerReferences": [owner]}, "spec": spec}),
    )?;
    Ok(Arc::new(PodInfo::new(Arc::new(pod))))
}

/// Returns a cluster of `nodes` with `pods` pods spread over it, each of which requests `cpu`.
pub fn cluster(nodes: usize, pods: usize, cpu: &str) -> Result<Arc<Snapshot>> {
    let cache = Cache::default();
    for at in 0..nodes {
        cache.set_node(&node(at, &[])?);
    }
    for at in 0..pods {
        cache.set_pod(&pod(
            &format!("p{at}"),
            cpu,
            json!({"nodeName": format!("n{}", at % nodes)}),
        )?);
    }
    Ok(cache.snapshot())
}

/// Returns a free volume that only the node `n{node}` reaches.
pub fn local_volume(at: usize, node: usize) -> Result<Arc<PersistentVolume>> {
    let host =
        json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [format!("n{node}")]});
    serde_json::from_value(
        json!({"metadata": {"name": format!("v{at}")}, "status": {"phase": "Available"},
        "spec": {"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}}}),
    )
}

/// Volumes of one class; every claim waits for its first consumer.
#[derive(Default)]
pub struct Objects {
    /// The volumes.
    pub volumes: Vec<Arc<PersistentVolume>>,
}

impl ClaimView for Objects {
    fn persistent_volume_claim(&self, _: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let claim = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"storageClassName": "c",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        serde_json::from_value(claim).ok()
    }

    fn persistent_volume(&self, _: &str) -> Option<Arc<PersistentVolume>> {
        None
    }

    fn volumes_of_class(&self, _: &str) -> Vec<Arc<PersistentVolume>> {
        self.volumes.clone()
    }

    fn storage_class(&self, name: &str) -> Option<Arc<StorageClass>> {
        let class = json!({"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer"});
        serde_json::from_value(class).ok()
    }
}

impl Cluster for Objects {
    fn disruption_budgets(&self, _: &str) -> Vec<Arc<PodDisruptionBudget>> {
        Vec::new()
    }

    fn claim_view(&self) -> &dyn ClaimView {
        self
    }

    fn service_selectors(&self, _: &str, _: &Labels) -> Vec<Labels> {
        Vec::new()
    }
}
