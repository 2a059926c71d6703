//! Decisions about a claim: which reservations end, whether its devices are freed, and whether it
//! is deleted with its finished pod.

use std::collections::HashSet;

use api_semantics::devices::{FINALIZER, is_allocated};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use controllers_runtime::{Meta, pods};

/// The writes that a claim needs, in this order.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// The claim with its new status.
    pub status: Option<ResourceClaim>,
    /// Removes the finalizer after the status was written.
    pub releases: bool,
    /// Deletes the claim.
    pub deletes: bool,
}

/// Returns whether it is certain that no container of the pod runs or will run.
pub fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || pod.is_deleting() && pods::node_name(pod).is_empty()
}

/// Returns the pods that a claim is reserved for.
pub fn reserving_pods(
    claim: &ResourceClaim,
) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    let status = claim.status.as_ref();
    let reserved = status.and_then(|status| status.reserved_for.as_deref());
    reserved.unwrap_or_default().iter().filter(|consumer| {
        consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty()
    })
}

/// Returns the pod that a claim was generated for.
pub fn owning_pod(claim: &ResourceClaim) -> Option<&OwnerReference> {
    claim
        .controller()
        .filter(|owner| owner.api_version == "v1" && owner.kind == "Pod")
}

/// Decides about a claim. `ended` has the UIDs of the reserving pods that have ended, and
/// `owner_done` means that the pod for which the claim was generated will not run any more.
pub fn plan_claim(claim: &ResourceClaim, ended: &HashSet<String>, owner_done: bool) -> Plan {
    let status = claim.status.clone().unwrap_or_default();
    let before = status.reserved_for.unwrap_or_default();
    let ends = |consumer: &ResourceClaimConsumerReference| {
        // Consumers of other kinds are kept: only their own controllers know when they end.
        ended.contains(&consumer.uid) && reserving_pods(claim).any(|pod| pod.uid == consumer.uid)
    };
    let count = before.len();
    let remaining: Vec<_> = before.into_iter().filter(|c| !ends(c)).collect();
    let unused = remaining.is_empty();
    let protected = claim.has_finalizer(FINALIZER);
    // Only the end of a use frees the devices. A claim may have been allocated by another client
    // before its first pod was reserved.
    let was_used = remaining.len() < count;
    let frees = protected && unused && (was_used || claim.is_deleting());
    let mut plan = Plan {
        releases: frees,
        deletes: unused && owner_done && !claim.is_deleting(),
        ..Plan::default()
    };
    if was_used || frees && is_allocated(claim) {
        let mut fresh = claim.clone();
        let status = fresh.status.get_or_insert_default();
        status.reserved_for = Some(remaining).filter(|all| !all.is_empty());
        if frees {
            status.allocation = None;
            // Conditions of devices that the claim no longer has.
            status.devices = None;
        }
        plan.status = Some(fresh);
    }
    plan
}

#[cfg(test)]
mod tests;
