//! The claims of a pod.

use std::collections::HashSet;
use std::sync::Arc;

use api_semantics::devices::{
    ClaimName, can_be_reserved, claim_name, claims_of_pod, is_allocated, is_generated_for,
    is_reserved_for, known_claim_names,
};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
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

/// The decision about a claim, to compare with the claim when it is written.
pub(super) struct Decision<'a> {
    /// The allocation to write; None if the claim had one.
    pub(super) fresh: Option<&'a AllocationResult>,
    /// The allocation for which the node was chosen.
    expected: Option<&'a AllocationResult>,
    pod: &'a str,
}

impl<'a> Decision<'a> {
    pub(super) fn new(
        claim: &'a ResourceClaim,
        fresh: Option<&'a AllocationResult>,
        pod: &'a str,
    ) -> Self {
        Self {
            fresh,
            expected: fresh.or_else(|| find_allocation(claim)),
            pod,
        }
    }

    /// Returns whether the claim is as decided, and false if it is to be written.
    ///
    /// # Errors
    /// The claim has changed, so that the chosen node may be a wrong one.
    pub(super) fn is_carried_out(&self, claim: &ResourceClaim) -> Result<bool, &'static str> {
        if claim.metadata.deletion_timestamp.is_some() {
            return Err("got deleted in the meantime");
        }
        let current = find_allocation(claim);
        let is_other = current.is_some_and(|current| !self.is_expected(current));
        if is_other {
            return Err("got allocated elsewhere in the meantime");
        }
        if current.is_some() && is_reserved_for(claim, self.pod) {
            return Ok(true);
        }
        match (current, self.fresh) {
            // The reservation for this pod is written with the allocation.
            (Some(_), Some(_)) => Err("got allocated elsewhere in the meantime"),
            (None, None) => Err("got deallocated elsewhere in the meantime"),
            _ if !can_be_reserved(claim) => Err("is in use"),
            _ => Ok(false),
        }
    }

    /// Returns whether an allocation has the expected devices and nodes.
    fn is_expected(&self, current: &AllocationResult) -> bool {
        self.expected.is_some_and(|expected| {
            expected.node_selector == current.node_selector
                && list_devices(expected).eq(list_devices(current))
        })
    }
}

fn find_allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Returns what identifies the devices of an allocation, by request.
fn list_devices(allocation: &AllocationResult) -> impl Iterator<Item = [&str; 5]> {
    let devices = allocation.devices.iter();
    let results = devices.flat_map(|devices| devices.results.iter().flatten());
    results.map(|result| {
        let share = result.share_id.as_deref().unwrap_or_default();
        [
            result.request.as_str(),
            result.driver.as_str(),
            result.pool.as_str(),
            result.device.as_str(),
            share,
        ]
    })
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
