//! Dynamic resource allocation: the claims of a pod, the pods that may use a claim, and the taints
//! of devices.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{DeviceTaint, DeviceToleration, ResourceClaim};

use crate::owners;

/// Keeps a claim while devices are allocated to it.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of a generated claim: the name of the entry in the pod's `spec.resourceClaims`.
pub const POD_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// Largest number of consumers of a claim.
pub const MAX_RESERVATIONS: usize = 256;
/// Largest number of devices of a claim.
pub const MAX_RESULTS: usize = 32;

/// The ResourceClaim of an entry in `spec.resourceClaims`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimName<'a> {
    /// The entry names the claim, which any pod may share.
    Named(&'a str),
    /// The claim was generated for the pod, which must be its owner.
    Generated(&'a str),
    /// The claim is still to be generated.
    NotGenerated,
    /// The pod needs no claim for the entry.
    NotNeeded,
    /// The entry names neither a claim nor a template.
    Unknown,
}

/// Returns the entries of a pod's `spec.resourceClaims`.
pub fn claims_of_pod(pod: &Pod) -> &[PodResourceClaim] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.resource_claims.as_deref())
        .unwrap_or_default()
}

/// Returns the claim of an entry. Generated names are in the pod's status.
pub fn claim_name<'a>(pod: &'a Pod, entry: &'a PodResourceClaim) -> ClaimName<'a> {
    if let Some(name) = &entry.resource_claim_name {
        return ClaimName::Named(name);
    }
    if entry.resource_claim_template_name.is_none() {
        return ClaimName::Unknown;
    }
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_deref());
    let recorded = statuses
        .unwrap_or_default()
        .iter()
        .find(|status| status.name == entry.name);
    match recorded.map(|status| status.resource_claim_name.as_deref()) {
        None => ClaimName::NotGenerated,
        Some(None) => ClaimName::NotNeeded,
        Some(Some(name)) => ClaimName::Generated(name),
    }
}

/// Returns the names of the claims that a pod uses, as far as they are known.
pub fn known_claim_names(pod: &Pod) -> impl Iterator<Item = &str> {
    let entries = claims_of_pod(pod).iter();
    entries.filter_map(|entry| match claim_name(pod, entry) {
        ClaimName::Named(name) | ClaimName::Generated(name) => Some(name),
        _ => None,
    })
}

/// Returns whether a claim was generated for a pod.
pub fn is_generated_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    !uid.is_empty() && owners::is_controlled_by(&claim.metadata, uid)
}

/// Returns whether devices are allocated to a claim.
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    let status = claim.status.as_ref();
    status.is_some_and(|status| status.allocation.is_some())
}

/// Returns whether a claim is reserved for the pod with this UID.
pub fn is_reserved_for(claim: &ResourceClaim, uid: &str) -> bool {
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_deref());
    let mut reserved = reserved.unwrap_or_default().iter();
    reserved.any(|consumer| consumer.uid == uid)
}

/// Returns whether a claim has room for one more consumer.
pub fn can_be_reserved(claim: &ResourceClaim) -> bool {
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_ref());
    reserved.is_none_or(|reserved| reserved.len() < MAX_RESERVATIONS)
}

/// Returns whether a toleration tolerates the taint of a device. An empty effect or key matches
/// each effect or key.
pub fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let matches = |field: &Option<String>, text: &str| given(field).is_none_or(|own| own == text);
    if !matches(&toleration.effect, &taint.effect) || !matches(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => given(&toleration.value) == given(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn claim_of_an_entry_is_named_recorded_or_still_to_be_generated() {
        let status = |name: Value| json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]});
        let named = json!({"name": "gpu", "resourceClaimName": "shared"});
        let template = json!({"name": "gpu", "resourceClaimTemplateName": "t"});
        for (entry, status, expect) in [
            (&named, json!({}), ClaimName::Named("shared")),
            (&template, json!({}), ClaimName::NotGenerated),
            (
                &template,
                status(json!("p-gpu-x")),
                ClaimName::Generated("p-gpu-x"),
            ),
            (&template, status(Value::Null), ClaimName::NotNeeded),
            (&json!({"name": "gpu"}), json!({}), ClaimName::Unknown),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": [], "resourceClaims": [entry]}, "status": status}))
            .unwrap();
            let entry = &claims_of_pod(&pod)[0];
            assert_eq!(claim_name(&pod, entry), expect, "{status}");
        }
    }

    #[test]
    fn toleration_of_a_device_taint_matches_key_effect_and_value() {
        let taint: DeviceTaint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"}))
                .unwrap();
        for (toleration, expect) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "k", "operator": "Exists"}), true),
            (json!({"key": "k", "value": "v"}), true),
            (json!({"key": "k", "value": "other"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "k", "operator": "Unknown"}), false),
        ] {
            let toleration_of: DeviceToleration =
                serde_json::from_value(toleration.clone()).unwrap();
            assert_eq!(tolerates(&toleration_of, &taint), expect, "{toleration}");
        }
    }
}
