//! VolumeBinding: a pod's claims must exist, and a node must be able to access their volumes.
//!
//! Bound claims restrict nodes by their volume's node affinity. Claims that wait for their first
//! consumer are satisfied if a free volume or a provisioner serves the node.

mod binder;
mod matching;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use scheduler_framework::{
    Cluster, CycleState, EventKind, ExtensionPoints, Filter, NodeInfo, Plugin, PodInfo, PreFilter,
    PreFilterResult, Rejection, Snapshot,
};
use serde_json::Value;

pub use binder::VolumeBinder;
use matching::{WaitingClaim, choose_volumes, reaches_node};

const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_FREE: &str = "node(s) didn't find available persistent volumes to bind";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

pub(crate) struct VolumeBinding {
    cluster: Arc<dyn Cluster>,
}

#[derive(Clone, Default)]
struct PodClaims {
    bound: Vec<Arc<PersistentVolume>>,
    /// The smallest claims first.
    waiting: Arc<Vec<WaitingClaim>>,
}

impl Plugin for VolumeBinding {
    const NAME: &'static str = "VolumeBinding";

    fn new(_: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self {
            cluster: cluster.clone(),
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[
            EventKind::StorageChanged,
            EventKind::NodeAdded,
            EventKind::NodeLabels,
        ]
    }
}

fn claim_names(pod: &PodInfo) -> Vec<String> {
    let volumes = pod
        .spec()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    let name = |volume: &k8s_openapi::api::core::v1::Volume| {
        // Generic ephemeral volumes have a claim of this name, created by a controller.
        if volume.ephemeral.is_some() {
            return Some(format!("{}-{}", pod.name(), volume.name));
        }
        volume
            .persistent_volume_claim
            .as_ref()
            .map(|claim| claim.claim_name.clone())
    };
    volumes.iter().filter_map(name).collect()
}

impl VolumeBinding {
    fn classify_claim(
        &self,
        pod: &PodInfo,
        name: &str,
        wanted: &mut PodClaims,
    ) -> Result<(), Rejection> {
        let no = |reason: String| Rejection::unresolvable(Self::NAME, reason);
        let claims = self.cluster.claim_view();
        let Some(claim) = claims.persistent_volume_claim(pod.namespace(), name) else {
            return Err(no(format!("persistentvolumeclaim {name:?} not found")));
        };
        // The claim is kept only by its protection finalizer. A pod that starts using it now would
        // block the deletion.
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(no(format!(
                "persistentvolumeclaim {name:?} is being deleted"
            )));
        }
        let spec = claim.spec.as_ref();
        let volume = spec
            .and_then(|spec| spec.volume_name.as_deref())
            .filter(|name| !name.is_empty());
        if let Some(volume) = volume {
            let volume = claims.persistent_volume(volume);
            wanted
                .bound
                .push(volume.ok_or_else(|| no(UNBOUND.to_owned()))?);
            return Ok(());
        }
        let class = spec
            .and_then(|spec| spec.storage_class_name.as_deref())
            .unwrap_or_default();
        let class = claims
            .storage_class(class)
            // With immediate binding the volume controller acts on its own, and the pod waits for
            // it.
            .filter(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let class = class.ok_or_else(|| no(UNBOUND.to_owned()))?;
        Arc::make_mut(&mut wanted.waiting).push(WaitingClaim::new(claim, class, claims));
        Ok(())
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> PreFilterResult {
        let names = claim_names(pod);
        if names.is_empty() {
            return PreFilterResult::Skip;
        }
        let mut wanted = PodClaims::default();
        for name in names {
            if let Err(rejection) = self.classify_claim(pod, &name, &mut wanted) {
                return PreFilterResult::Reject(rejection);
            }
        }
        let waiting: &mut Vec<WaitingClaim> = Arc::make_mut(&mut wanted.waiting);
        // Sorted once per pod, not for each node.
        matching::sort_by_size(waiting);
        state.store_value(wanted);
        PreFilterResult::All
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(wanted) = state.get::<PodClaims>() else {
            return Ok(());
        };
        if !wanted.bound.iter().all(|volume| reaches_node(volume, node)) {
            return Err(Rejection::unresolvable(Self::NAME, AFFINITY));
        }
        let chosen = choose_volumes(&wanted.waiting, node);
        // Static volumes come first; a claim without one can still be provisioned.
        let mut served = wanted
            .waiting
            .iter()
            .zip(chosen)
            .map(|(waiting, volume)| volume.is_some() || waiting.is_provisioned());
        if served.all(|served| served) {
            Ok(())
        } else {
            Err(Rejection::unresolvable(Self::NAME, NONE_FREE))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{build_pod, empty_cluster};
    use serde_json::json;

    #[test]
    fn missing_claim_is_named_in_the_rejection() {
        let plugin = VolumeBinding::new(&Value::Null, &empty_cluster()).unwrap();
        let spec =
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let run = |pod: PodInfo| {
            plugin.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default())
        };
        let PreFilterResult::Reject(rejection) = run(build_pod(spec)) else {
            panic!("accepted")
        };
        assert_eq!(
            rejection.reasons,
            ["persistentvolumeclaim \"data\" not found"]
        );
        assert!(matches!(run(build_pod(json!({}))), PreFilterResult::Skip));
    }

    fn claim(name: &str, spec: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec})
    }

    fn pod_with_claim(name: &str) -> PodInfo {
        build_pod(json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}))
    }

    /// Returns the reason for which a node in zone `a` cannot run the pod; None if it can.
    fn reason(cluster: crate::testing::TestCluster, pod: &PodInfo) -> Option<String> {
        let cluster: Arc<dyn Cluster> = Arc::new(cluster);
        let plugin = VolumeBinding::new(&Value::Null, &cluster).unwrap();
        let mut state = CycleState::default();
        if let PreFilterResult::Reject(rejection) =
            plugin.pre_filter(&mut state, pod, &Snapshot::default())
        {
            return Some(rejection.reasons.join("; "));
        }
        let node = crate::testing::labelled_node("n", json!({"zone": "a"}));
        let rejection = plugin.filter(&state, pod, &node).err();
        rejection.map(|rejection| rejection.reasons.join("; "))
    }

    #[test]
    fn bound_claim_restricts_the_pod_to_nodes_that_can_access_its_volume() {
        for (zone, want) in [("a", None), ("b", Some(AFFINITY))] {
            let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "zone", "operator": "In", "values": [zone]}]}]}});
            let cluster = crate::testing::TestCluster {
                claims: vec![claim("data", json!({"volumeName": "pv"}))],
                volumes: vec![
                    json!({"metadata": {"name": "pv"}, "spec": {"nodeAffinity": affinity}}),
                ],
                ..Default::default()
            };
            assert_eq!(
                reason(cluster, &pod_with_claim("data")).as_deref(),
                want,
                "{zone}"
            );
        }
    }

    #[test]
    fn unbound_claim_must_wait_for_its_first_consumer() {
        let class = |mode: &str, provisioner: &str| json!({"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": mode});
        let no_provisioner = "kubernetes.io/no-provisioner";
        for (class, want) in [
            (class("Immediate", "example.com/disks"), Some(UNBOUND)),
            (class("WaitForFirstConsumer", "example.com/disks"), None),
            (
                class("WaitForFirstConsumer", no_provisioner),
                Some(NONE_FREE),
            ),
        ] {
            let cluster = crate::testing::TestCluster {
                claims: vec![claim("data", json!({"storageClassName": "c"}))],
                classes: vec![class.clone()],
                ..Default::default()
            };
            assert_eq!(
                reason(cluster, &pod_with_claim("data")).as_deref(),
                want,
                "{class}"
            );
        }
    }

    #[test]
    fn claim_that_is_being_deleted_rejects_the_pod() {
        let mut deleting = claim("data", json!({"volumeName": "pv"}));
        deleting["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        let cluster = crate::testing::TestCluster {
            claims: vec![deleting],
            ..Default::default()
        };
        let want = "persistentvolumeclaim \"data\" is being deleted";
        assert_eq!(
            reason(cluster, &pod_with_claim("data")).as_deref(),
            Some(want)
        );
    }

    #[test]
    fn generic_ephemeral_volume_has_a_claim_named_after_the_pod_and_the_volume() {
        let pod = build_pod(json!({"volumes": [
            {"name": "scratch", "ephemeral": {}}, {"name": "logs", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]}));
        assert_eq!(claim_names(&pod), ["p-scratch", "shared"]);
    }
}
