//! What every part of the kubelet shares.

use crate::cgroups::Cgroups;
use crate::config::Settings;
use crate::pod::Nanos;
use crate::volumes::Objects;
use crate::worker::Workers;
use api_meta::Quantity;
use base_task::Tasks;
use client::{Client, Store, events::Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use node_runtime::Runtime;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// More starts at once only make each slower: shim and runc are bound by the processors.
pub(crate) const STARTS_AT_ONCE: usize = 4;

/// The node.
pub(crate) struct Node {
    pub(crate) settings: Settings,
    pub(crate) runtime: Runtime,
    /// `containerd`, before `://` in container ids.
    pub(crate) runtime_name: String,
    pub(crate) client: Option<Client>,
    pub(crate) recorder: Recorder,
    pub(crate) objects: Objects,
    pub(crate) services: Option<Store<Service>>,
    pub(crate) cgroups: Cgroups,
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) least_oom_score: i64,
    pub(crate) starts: Semaphore,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tasks: Tasks,
    /// Addresses as text.
    pub(crate) ips: Vec<String>,
}

impl Node {
    pub(crate) fn seccomp_profiles(&self) -> PathBuf {
        self.settings.root_dir.join("seccomp")
    }

    pub(crate) fn memory_capacity(&self) -> i64 {
        self.capacity.get("memory").map_or(0, |q| q.value())
    }

    /// Services, once they are all known.
    pub(crate) async fn services(&self) -> Vec<Arc<Service>> {
        let Some(store) = &self.services else { return Vec::new() };
        store.synced().await;
        store.list()
    }
}

/// The present time.
pub(crate) fn now() -> Nanos {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// A reference for events, to a pod or one of its containers.
pub(crate) fn reference(pod: &Pod, container: Option<(&str, &str)>) -> ObjectReference {
    let field_path = container.map(|(list, name)| format!("spec.{list}{{{name}}}"));
    ObjectReference { field_path, ..client::object_reference(pod) }
}
