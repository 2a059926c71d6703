//! Inputs of a reconcile of a StatefulSet.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use controllers_runtime::{Meta, pods};

/// Claims of a namespace by name.
pub type Claims = BTreeMap<String, Arc<PersistentVolumeClaim>>;

/// Inputs of one reconcile.
pub struct View<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// The pods of the set.
    pub pods: Vec<Arc<Pod>>,
    /// The revision before the running update.
    pub current: ControllerRevision,
    /// The revision of the current template.
    pub update: ControllerRevision,
    /// The namespace's claims.
    pub claims: &'a Claims,
    /// Current time.
    pub now: Timestamp,
}

impl View<'_> {
    /// Returns the first ordinal.
    pub fn first_ordinal(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|s| s.ordinals.as_ref())
            .and_then(|o| o.start)
            .unwrap_or(0)
    }

    /// Returns the desired number of pods.
    pub fn replicas(&self) -> i32 {
        self.set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    /// Returns whether pods wait for the pods before them.
    pub fn is_ordered(&self) -> bool {
        let policy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.pod_management_policy.as_deref());
        policy != Some("Parallel")
    }

    /// Returns `minReadySeconds`.
    pub fn min_ready(&self) -> i32 {
        self.set
            .spec
            .as_ref()
            .and_then(|s| s.min_ready_seconds)
            .unwrap_or(0)
    }

    /// Returns whether the update strategy is RollingUpdate.
    pub fn is_rolling(&self) -> bool {
        let strategy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.update_strategy.as_ref());
        strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete")
    }

    /// Returns the partition: ordinals below `start + partition` keep the current revision.
    pub fn update_partition(&self) -> i32 {
        let strategy = self
            .set
            .spec
            .as_ref()
            .and_then(|s| s.update_strategy.as_ref());
        strategy
            .and_then(|s| s.rolling_update.as_ref())
            .and_then(|r| r.partition)
            .unwrap_or(0)
    }

    /// Returns whether the pod is ready and not terminating.
    pub fn is_healthy(&self, pod: &Pod) -> bool {
        pods::phase(pod) == "Running" && pods::is_ready(pod) && !pod.is_deleting()
    }

    /// Returns whether the pod has been healthy for `minReadySeconds`.
    pub fn is_pod_available(&self, pod: &Pod) -> bool {
        self.is_healthy(pod) && pods::is_available(pod, self.min_ready(), self.now)
    }
}
