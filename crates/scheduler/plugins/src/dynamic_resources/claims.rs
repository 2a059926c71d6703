//! The claims of a pod.

use std::collections::HashSet;
use std::sync::Arc;

use api_semantics::devices::{
    ClaimName, can_be_reserved, claim_name, claims_of_pod, is_allocated, is_generated_for,
    is_reserved_for, known_claim_names,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_devices::DeviceView;
use scheduler_framework::PodInfo;

/// Returns the claims that the pod needs, each once, or the reason why the pod must wait.
pub(super) fn read_claims(
    view: &dyn DeviceView,
    pod: &PodInfo,
) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let mut claims: Vec<Arc<ResourceClaim>> = Vec::new();
    let mut known = HashSet::new();
    for entry in claims_of_pod(&pod.pod) {
        let (name, generated) = match claim_name(&pod.pod, entry) {
            ClaimName::NotNeeded => continue,
            ClaimName::Named(name) => (name, false),
            ClaimName::Generated(name) => (name, true),
            ClaimName::NotGenerated => {
                return Err(format!(
                    "pod {:?}: ResourceClaim not created yet",
                    pod.key()
                ));
            }
            ClaimName::Unknown => {
                let (pod, entry) = (pod.key(), &entry.name);
                return Err(format!(
                    "pod {pod:?}, spec.resourceClaims {entry:?}: unsupported claim type"
                ));
            }
        };
        let claim = view
            .resource_claim(pod.namespace(), name)
            .ok_or_else(|| format!("resourceclaim {name:?} not found"))?;
        check_claim(view, pod, &claim, generated)?;
        // Two entries of a pod may name one claim.
        if known.insert(claim.metadata.uid.clone()) {
            claims.push(claim);
        }
    }
    Ok(claims)
}

fn check_claim(
    view: &dyn DeviceView,
    pod: &PodInfo,
    claim: &ResourceClaim,
    generated: bool,
) -> Result<(), String> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("resourceclaim {name:?} is being deleted"));
    }
    if generated && !is_generated_for(claim, &pod.pod) {
        let (key, namespace) = (pod.key(), pod.namespace());
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for pod {key} (pod is not owner)"
        ));
    }
    if is_allocated(claim) {
        if !can_be_reserved(claim) && !is_reserved_for(claim, pod.uid()) {
            return Err("resourceclaim in use".to_owned());
        }
    } else if view
        .ledger()
        .is_pending(claim.metadata.uid.as_deref().unwrap_or_default())
    {
        let namespace = pod.namespace();
        return Err(format!(
            "resource claim {namespace}/{name} is in the process of being allocated"
        ));
    }
    Ok(())
}

/// Returns whether a pod uses a claim.
pub(super) fn uses_claim(pod: &PodInfo, namespace: &str, name: &str) -> bool {
    pod.namespace() == namespace && known_claim_names(&pod.pod).any(|known| known == name)
}

/// Returns the alternatives of a claim's requests: their places in their request, and their names.
pub(super) fn alternatives(claim: &ResourceClaim) -> impl Iterator<Item = (usize, String)> {
    let devices = claim.spec.devices.as_ref();
    let requests = devices.and_then(|devices| devices.requests.as_deref());
    requests.unwrap_or_default().iter().flat_map(|request| {
        let subrequests = request.first_available.iter().flatten().enumerate();
        subrequests.map(|(index, sub)| (index, format!("{}/{}", request.name, sub.name)))
    })
}
