//! The context that every part of the kubelet shares.

use crate::cgroups::Cgroups;
use crate::config::Settings;
use crate::cri_config::apparmor;
use crate::pod::Nanos;
use crate::volumes::Objects;
use crate::worker::Workers;
use api_meta::Quantity;
use base_task::Tasks;
use client::{Client, Store, events::Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use node_devices::Devices;
use node_runtime::Runtime;
use node_runtime::v1::{RuntimeHandler, StatusResponse};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Notify, Semaphore};

/// Concurrent container starts. More would only slow each down: shim and runc are bound by the
/// processors.
pub(crate) const STARTS_AT_ONCE: usize = 4;

/// The kubelet's context.
pub(crate) struct KubeletContext {
    pub(crate) settings: Settings,
    pub(crate) runtime: Runtime,
    /// Runtime name, such as `containerd`: the prefix of container ids before `://`.
    pub(crate) runtime_name: String,
    pub(crate) client: Option<Client>,
    pub(crate) recorder: Recorder,
    pub(crate) objects: Objects,
    pub(crate) services: Option<Store<Service>>,
    pub(crate) cgroups: Cgroups,
    /// Devices of the pods' ResourceClaims.
    pub(crate) devices: Devices,
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) least_oom_score: i64,
    pub(crate) starts: Semaphore,
    pub(crate) workers: Arc<Workers>,
    pub(crate) tasks: Tasks,
    pub(crate) features: RwLock<Features>,
    /// Notified when a static pod has been cleaned up.
    pub(crate) static_pod_removed: Notify,
    /// Addresses of the node as text.
    pub(crate) ips: Vec<String>,
    /// File of the server's certificate; unset until the server starts.
    pub(crate) serving_certificate: OnceLock<PathBuf>,
}

/// Features of host and runtime that pods may need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// The kernel enforces AppArmor profiles.
    pub(crate) apparmor: bool,
    /// The runtime supports supplementalGroupsPolicy Strict.
    pub(crate) strict_groups: bool,
    /// Runtime handlers that support recursive read-only mounts.
    pub(crate) recursive_read_only: BTreeSet<String>,
}

impl Features {
    /// Reads the features from the runtime's status.
    pub(crate) fn from_status(status: &StatusResponse, apparmor: bool) -> Self {
        let recursive = |h: &&RuntimeHandler| {
            h.features
                .as_ref()
                .is_some_and(|f| f.recursive_read_only_mounts)
        };
        Features {
            apparmor,
            strict_groups: status
                .features
                .as_ref()
                .is_some_and(|f| f.supplemental_groups_policy),
            recursive_read_only: status
                .runtime_handlers
                .iter()
                .filter(recursive)
                .map(|h| h.name.clone())
                .collect(),
        }
    }
}

impl KubeletContext {
    /// Updates the features from the runtime's status.
    pub(crate) fn update_features(&self, status: &StatusResponse) {
        // A simulated container has no process to confine.
        let apparmor = self.settings.simulated() || apparmor::is_enabled();
        *self.features.write() = Features::from_status(status, apparmor);
    }

    pub(crate) fn seccomp_profiles(&self) -> PathBuf {
        self.settings.root_dir.join("seccomp")
    }

    pub(crate) fn memory_capacity(&self) -> i64 {
        self.capacity.get("memory").map_or(0, |q| q.value())
    }

    /// Returns all Services once the informer has synced. A static pod does not wait: it may be the
    /// API server.
    pub(crate) async fn list_services(&self, is_static: bool) -> Vec<Arc<Service>> {
        let Some(store) = &self.services else {
            return Vec::new();
        };
        // The informer can sync only when the API server runs, and that may be this very pod.
        if !is_static {
            store.wait_until_synced().await;
        }
        store.list()
    }
}

/// Returns the current time.
pub(crate) fn now() -> Nanos {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Builds the object reference of an event: a pod or one of its containers.
pub(crate) fn build_reference(pod: &Pod, container: Option<(&str, &str)>) -> ObjectReference {
    let field_path = container.map(|(list, name)| format!("spec.{list}{{{name}}}"));
    ObjectReference {
        field_path,
        ..client::object_reference(pod)
    }
}
