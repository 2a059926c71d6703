//! VolumeBinding: a pod's claims must exist, and a node must be able to access their volumes.
//!
//! Bound claims restrict nodes by their volume's node affinity. Claims that wait for their first
//! consumer are satisfied if a free volume or a provisioner serves the node.

mod binder;
mod matching;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use scheduler_framework::{
    Cluster, CycleState, EventKind, Filter, NodeInfo, Plugin, PodInfo, Points, PreFilter,
    PreFilterOutcome, Rejection, Snapshot,
};
use serde_json::Value;

pub use binder::VolumeBinder;
use matching::{Waiting, choose_volumes, reaches_node};

const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_FREE: &str = "node(s) didn't find available persistent volumes to bind";
const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";

pub(crate) struct VolumeBinding {
    cluster: Arc<dyn Cluster>,
}

#[derive(Clone, Default)]
struct Wanted {
    bound: Vec<Arc<PersistentVolume>>,
    /// The smallest claims first.
    waiting: Arc<Vec<Waiting>>,
}

impl Plugin for VolumeBinding {
    const NAME: &'static str = "VolumeBinding";

    fn new(_: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self {
            cluster: Arc::clone(cluster),
        })
    }

    fn extend(self: Arc<Self>, points: &mut Points) {
        points.pre_filter(&self);
        points.filter(&self);
    }

    fn events(&self) -> &'static [EventKind] {
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
    fn sort(&self, pod: &PodInfo, name: &str, wanted: &mut Wanted) -> Result<(), Rejection> {
        let no = |reason: String| Rejection::unresolvable(Self::NAME, reason);
        let claims = self.cluster.claims();
        let Some(claim) = claims.claim(pod.namespace(), name) else {
            return Err(no(format!("persistentvolumeclaim {name:?} not found")));
        };
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
            let volume = claims.volume(volume);
            wanted
                .bound
                .push(volume.ok_or_else(|| no(UNBOUND.to_owned()))?);
            return Ok(());
        }
        let class = spec
            .and_then(|spec| spec.storage_class_name.as_deref())
            .unwrap_or_default();
        let class = claims
            .class(class)
            .filter(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let class = class.ok_or_else(|| no(UNBOUND.to_owned()))?;
        Arc::make_mut(&mut wanted.waiting).push(Waiting::new(claim, class, claims));
        Ok(())
    }
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
        let waiting: &mut Vec<Waiting> = Arc::make_mut(&mut wanted.waiting);
        matching::sort_by_size(waiting);
        state.put(wanted);
        PreFilterOutcome::All
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(wanted) = state.get::<Wanted>() else {
            return Ok(());
        };
        if !wanted.bound.iter().all(|volume| reaches_node(volume, node)) {
            return Err(Rejection::unresolvable(Self::NAME, AFFINITY));
        }
        let chosen = choose_volumes(&wanted.waiting, node);
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
    use crate::testing::{nothing, pod};
    use serde_json::json;

    #[test]
    fn missing_claims_are_named() {
        let plugin = VolumeBinding::new(&Value::Null, &nothing()).unwrap();
        let spec =
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let run = |pod: PodInfo| {
            plugin.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default())
        };
        let PreFilterOutcome::Reject(rejection) = run(pod(spec)) else {
            panic!("accepted")
        };
        assert_eq!(
            rejection.reasons,
            ["persistentvolumeclaim \"data\" not found"]
        );
        assert!(matches!(run(pod(json!({}))), PreFilterOutcome::Skip));
    }
}
