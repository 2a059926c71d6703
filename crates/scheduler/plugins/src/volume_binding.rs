//! VolumeBinding: a pod's claims must exist, and a node must be able to reach their volumes.
//!
//! Bound claims restrict nodes by their volume's node affinity. Claims that wait for their first consumer are
//! satisfied where a free volume or a provisioner serves the node.

mod binder;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_framework::selector::{labels_match, node_matches};
use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, Filter, NodeInfo, Plugin, PodInfo, Points, PreFilter, PreFilterOutcome,
    Rejection, Resources, Snapshot,
};
use serde_json::Value;

pub use binder::VolumeBinder;

const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_FREE: &str = "node(s) didn't find available persistent volumes to bind";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

pub(crate) struct VolumeBinding {
    cluster: Arc<dyn Cluster>,
}

#[derive(Clone, Default)]
struct Wanted {
    bound: Vec<Arc<PersistentVolume>>,
    waiting: Vec<(Arc<PersistentVolumeClaim>, Arc<StorageClass>)>,
}

impl Plugin for VolumeBinding {
    const NAME: &'static str = "VolumeBinding";

    fn new(_: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self { cluster: Arc::clone(cluster) })
    }

    fn extend(self: Arc<Self>, points: &mut Points) {
        points.pre_filter(&self);
        points.filter(&self);
    }

    fn hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::StorageChanged | ClusterEvent::NodeAdded(_) | ClusterEvent::NodeUpdated { .. })
    }
}

fn claim_names(pod: &PodInfo) -> Vec<String> {
    let volumes = pod.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let name = |volume: &k8s_openapi::api::core::v1::Volume| {
        if volume.ephemeral.is_some() {
            return Some(format!("{}-{}", pod.name(), volume.name));
        }
        volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone())
    };
    volumes.iter().filter_map(name).collect()
}

impl VolumeBinding {
    fn sort(&self, pod: &PodInfo, name: &str, wanted: &mut Wanted) -> Result<(), Rejection> {
        let no = |reason: String| Rejection::unresolvable(Self::NAME, reason);
        let claims = self.cluster.claims();
        let Some(claim) = claims.claim(pod.namespace(), name) else {
            return Err(no(format!("persistentvolumeclaim {name:?} not found")));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(no(format!("persistentvolumeclaim {name:?} is being deleted")));
        }
        let spec = claim.spec.as_ref();
        let volume = spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
        if let Some(volume) = volume {
            let volume = claims.volume(volume);
            wanted.bound.push(volume.ok_or_else(|| no(UNBOUND.to_owned()))?);
            return Ok(());
        }
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
        let class =
            claims.class(class).filter(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        wanted.waiting.push((Arc::clone(&claim), class.ok_or_else(|| no(UNBOUND.to_owned()))?));
        Ok(())
    }
}

fn reaches(volume: &PersistentVolume, node: &NodeInfo) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let Some(object) = &node.node else { return false };
    required.is_none_or(|required| node_matches(required, object))
}

/// Whether a free volume serves a claim on a node.
fn serves(volume: &PersistentVolume, claim: &PersistentVolumeClaim, node: &NodeInfo) -> bool {
    let (Some(offer), Some(want)) = (&volume.spec, &claim.spec) else { return false };
    let taken = offer.claim_ref.as_ref().is_some_and(|by| by.uid != claim.metadata.uid);
    let storage = |list| Resources::of(list).get("storage");
    let large = storage(offer.capacity.as_ref())
        >= storage(want.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let modes = offer.access_modes.as_deref().unwrap_or_default();
    let accessible = want.access_modes.iter().flatten().all(|mode| modes.contains(mode));
    let chosen = want.selector.is_none() || labels_match(want.selector.as_ref(), volume.metadata.labels.as_ref());
    let class = |name: &Option<String>| name.clone().unwrap_or_default();
    let same = class(&offer.storage_class_name) == class(&want.storage_class_name);
    !taken && large && accessible && chosen && same && reaches(volume, node)
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> PreFilterOutcome {
        let names = claim_names(pod);
        if names.is_empty() {
            return PreFilterOutcome::Skip;
        }
        let mut wanted = Wanted::default();
        for name in names {
            if let Err(rejection) = self.sort(pod, &name, &mut wanted) {
                return PreFilterOutcome::Reject(rejection);
            }
        }
        state.put(wanted);
        PreFilterOutcome::All
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(wanted) = state.get::<Wanted>() else { return Ok(()) };
        if !wanted.bound.iter().all(|volume| reaches(volume, node)) {
            return Err(Rejection::unresolvable(Self::NAME, AFFINITY));
        }
        let free = || self.cluster.claims().volumes();
        let served = |(claim, class): &(Arc<PersistentVolumeClaim>, Arc<StorageClass>)| {
            class.provisioner != "kubernetes.io/no-provisioner"
                || free().iter().any(|volume| serves(volume, claim, node))
        };
        if wanted.waiting.iter().all(served) { Ok(()) } else { Err(Rejection::unresolvable(Self::NAME, NONE_FREE)) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{labelled, nothing, pod};
    use serde_json::json;

    #[test]
    fn missing_claims_are_named() {
        let plugin = VolumeBinding::new(&Value::Null, &nothing()).unwrap();
        let spec = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let run = |pod: PodInfo| plugin.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default());
        let PreFilterOutcome::Reject(rejection) = run(pod(spec)) else { panic!("accepted") };
        assert_eq!(rejection.reasons, ["persistentvolumeclaim \"data\" not found"]);
        assert!(matches!(run(pod(json!({}))), PreFilterOutcome::Skip));
    }

    #[test]
    fn volumes_serve_claims() {
        let volume = |spec: Value| -> PersistentVolume { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({"spec": {"storageClassName": "c",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
        .unwrap();
        let offer = json!({"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}});
        let node = labelled("n", json!({"zone": "a"}));
        assert!(serves(&volume(offer.clone()), &claim, &node));
        for (field, value) in [
            ("storageClassName", json!("d")),
            ("capacity", json!({"storage": "1Mi"})),
            ("accessModes", json!(["ReadOnlyMany"])),
            ("claimRef", json!({"uid": "x"})),
            (
                "nodeAffinity",
                json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
                [{"key": "zone", "operator": "In", "values": ["b"]}]}]}}),
            ),
        ] {
            let mut other = offer.clone();
            other[field] = value;
            assert!(!serves(&volume(other), &claim, &node), "{field}");
        }
    }
}
