//! PersistentVolumeClaims and their bound volumes: checks that a pod may use them.
//!
//! A claim's creator chooses `spec.volumeName`, so that field proves nothing: the volume
//! controller's decision is the claim's phase, and the volume itself names the claim that owns it.

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, Pod,
};

/// Returns the name of the volume that `claim` is bound to. With `of_pod`, the claim must have been
/// created for that pod (a generic ephemeral volume).
///
/// # Errors
/// The reason why the claim can't be used, for an event.
pub(crate) fn bound_volume<'a>(
    claim: &'a PersistentVolumeClaim,
    of_pod: Option<&Pod>,
) -> Result<&'a str, String> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if let Some(pod) = of_pod
        && !is_controlled_by(claim, pod)
    {
        return Err(format!(
            "claim {name:?} was not created for this pod, which is not its owner"
        ));
    }
    // Protected by its finalizer only as long as pods use it; a new pod must not prolong that.
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("claim {name:?} is being deleted"));
    }
    let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
    let volume = claim
        .spec
        .as_ref()
        .and_then(|s| s.volume_name.as_deref())
        .filter(|v| !v.is_empty());
    volume
        .filter(|_| bound)
        .ok_or_else(|| format!("claim {name:?} is not bound"))
}

/// Returns the spec of a volume that belongs to `claim`.
///
/// # Errors
/// The volume belongs to another claim or to none.
pub(crate) fn owned_spec(
    volume: PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Result<PersistentVolumeSpec, String> {
    let name = volume.metadata.name.unwrap_or_default();
    let spec = volume.spec.unwrap_or_default();
    let owner = spec
        .claim_ref
        .as_ref()
        .and_then(|c| c.uid.as_deref())
        .filter(|uid| !uid.is_empty());
    if owner.is_none() || owner != claim.metadata.uid.as_deref() {
        let claim = claim.metadata.name.as_deref().unwrap_or_default();
        return Err(format!(
            "volume {name:?} does not belong to claim {claim:?}"
        ));
    }
    Ok(spec)
}

fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let uid = pod.metadata.uid.as_deref();
    uid.is_some_and(|uid| api_semantics::owners::is_controlled_by(&claim.metadata, uid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn claim(more: Value) -> PersistentVolumeClaim {
        let mut value = json!({"metadata": {"name": "c", "uid": "c1"}, "spec": {"volumeName": "v"},
            "status": {"phase": "Bound"}});
        merge(&mut value, more);
        serde_json::from_value(value).unwrap()
    }

    fn merge(into: &mut Value, more: Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                more.into_iter()
                    .for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, more) => *into = more,
        }
    }

    #[test]
    fn claim_must_be_bound_by_the_controller() {
        for (more, usable) in [
            (json!({}), true),
            (json!({"status": {"phase": "Pending"}}), false),
            (json!({"status": {"phase": "Lost"}}), false),
            (json!({"status": {"phase": null}}), false),
            (json!({"spec": {"volumeName": ""}}), false),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
                false,
            ),
        ] {
            assert_eq!(
                bound_volume(&claim(more.clone()), None).is_ok(),
                usable,
                "{more}"
            );
        }
    }

    #[test]
    fn volume_must_name_the_claim() {
        for (reference, usable) in [
            (json!({"name": "c", "namespace": "a", "uid": "c1"}), true),
            (
                json!({"name": "c", "namespace": "a", "uid": "other"}),
                false,
            ),
            (json!({"name": "c", "namespace": "a"}), false),
            (Value::Null, false),
        ] {
            let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef": reference}});
            let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
            assert_eq!(
                owned_spec(volume, &claim(json!({}))).is_ok(),
                usable,
                "{reference}"
            );
        }
    }

    #[test]
    fn ephemeral_claim_must_be_controlled_by_its_pod() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "p1"}})).unwrap();
        let owner = |uid: &str, controller: bool| {
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid,
                "controller": controller}]}})
        };
        for (more, usable) in [
            (owner("p1", true), true),
            (owner("p1", false), false),
            (owner("p2", true), false),
            (json!({}), false),
        ] {
            assert_eq!(
                bound_volume(&claim(more.clone()), Some(&pod)).is_ok(),
                usable,
                "{more}"
            );
        }
    }
}
