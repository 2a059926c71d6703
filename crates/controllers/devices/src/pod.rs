//! Decisions about a pod: which claims to make, what to record in its status, and which claims to
//! reserve for a pod that got its node without the scheduler.

use std::sync::Arc;

use api_semantics::devices::{
    ClaimName, POD_CLAIM_ANNOTATION, can_be_reserved, claim_name, claims_of_pod, is_allocated,
    is_generated_for, is_reserved_for,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{
    ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use controllers_runtime::{
    Action, Meta, Note, Target, Write, controller_reference, object_reference, pods,
};

/// Longest name in front of the generated part: names of 63 characters remain valid labels.
const MAX_BASE: usize = 57;
const FAILED: &str = "FailedResourceClaimCreation";

/// Read access to the objects of a pod's namespace.
pub trait PodView {
    /// Returns a claim by name.
    fn claim(&self, name: &str) -> Option<Arc<ResourceClaim>>;
    /// Returns the claims that the object with this UID controls.
    fn owned_claims(&self, uid: &str) -> Vec<Arc<ResourceClaim>>;
    /// Returns a template by name.
    fn template(&self, name: &str) -> Option<Arc<ResourceClaimTemplate>>;
}

/// Returns the actions for one pod. A created claim is recorded in a later pass, when the cache
/// shows its name.
pub fn reconcile_pod(pod: &Pod, view: &dyn PodView) -> Vec<Action> {
    // A terminated pod uses no claim. One that is being deleted must not get a new one.
    if pod.is_deleting() || pods::is_terminal(pod) {
        return Vec::new();
    }
    let mut recorded = Vec::new();
    let mut actions = Vec::new();
    for entry in claims_of_pod(pod) {
        if !needs_claim(pod, entry, view) {
            continue;
        }
        match find_generated(pod, entry, view) {
            Some(claim) => recorded.push(status_entry(&entry.name, claim.name())),
            None => actions.extend(make_claim(pod, entry, view)),
        }
    }
    if !recorded.is_empty() {
        let patch = json!({"metadata": {"uid": pod.uid()},
            "status": {"resourceClaimStatuses": recorded}});
        actions.push(Action::strategic_status(Target::of(pod), patch).ignore_absent());
    } else if actions.is_empty() {
        actions.extend(reserve_claims(pod, view));
    }
    actions
}

fn status_entry(entry: &str, claim: &str) -> Value {
    json!({"name": entry, "resourceClaimName": claim})
}

/// Returns whether a claim must be made or recorded for an entry.
fn needs_claim(pod: &Pod, entry: &PodResourceClaim, view: &dyn PodView) -> bool {
    match claim_name(pod, entry) {
        ClaimName::NotGenerated => true,
        // A claim that was deleted by mistake is made again, and one of that name that belongs to
        // another object is not used.
        ClaimName::Generated(name) => view
            .claim(name)
            .is_none_or(|claim| !is_generated_for(&claim, pod)),
        ClaimName::Named(_) | ClaimName::NotNeeded | ClaimName::Unknown => false,
    }
}

/// Returns the claim that was made for an entry. The status may lack it: the controller may have
/// ended after the creation.
fn find_generated(
    pod: &Pod,
    entry: &PodResourceClaim,
    view: &dyn PodView,
) -> Option<Arc<ResourceClaim>> {
    let owned = view.owned_claims(pod.uid());
    let of_entry = owned.into_iter().filter(|claim| {
        claim.annotation(POD_CLAIM_ANNOTATION) == Some(&entry.name) && !claim.is_deleting()
    });
    of_entry.min_by(|a, b| a.name().cmp(b.name()))
}

fn make_claim(pod: &Pod, entry: &PodResourceClaim, view: &dyn PodView) -> Option<Action> {
    let name = entry.resource_claim_template_name.as_deref()?;
    let regarding = object_reference(pod);
    let Some(template) = view.template(name) else {
        // The template's creation reconciles the pod again.
        let text = format!(
            "PodResourceClaim {}: resource claim template {name:?} not found",
            entry.name
        );
        return Some(Action::warning(&regarding, FAILED, text));
    };
    let mut write = Write::create(&generate_claim(pod, entry, &template));
    let text = format!(
        "PodResourceClaim {}: create ResourceClaim: {{error}}",
        entry.name
    );
    write.notes.failure = Some(Note::warning(&regarding, FAILED, &text));
    Some(write.into())
}

fn generate_claim(
    pod: &Pod,
    entry: &PodResourceClaim,
    template: &ResourceClaimTemplate,
) -> ResourceClaim {
    let given = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = given.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_ANNOTATION.to_owned(), entry.name.clone());
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(pod.name(), &entry.name)),
            namespace: pod.meta().namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// Returns the prefix of a generated name. Of long names, pod and entry keep a part in proportion
/// to their length.
fn name_prefix(pod: &str, entry: &str) -> String {
    let full = format!("{pod}-{entry}-");
    if full.len() <= MAX_BASE {
        return full;
    }
    let part = |name: &str| {
        let keep = name.len() * MAX_BASE / full.len();
        name.chars().take(keep).collect::<String>()
    };
    format!("{}-{}", part(pod), part(entry))
}

/// Reserves allocated claims for a pod that was bound by another scheduler or by its creator.
fn reserve_claims(pod: &Pod, view: &dyn PodView) -> Vec<Action> {
    if pods::node_name(pod).is_empty() {
        // The scheduler reserves the claims before it binds the pod.
        return Vec::new();
    }
    let claims = claims_of_pod(pod).iter().filter_map(|entry| {
        let (name, generated) = match claim_name(pod, entry) {
            ClaimName::Named(name) => (name, false),
            ClaimName::Generated(name) => (name, true),
            _ => return None,
        };
        view.claim(name)
            .filter(|claim| !generated || is_generated_for(claim, pod))
    });
    let unreserved = claims.filter(|claim| {
        is_allocated(claim) && !is_reserved_for(claim, pod.uid()) && can_be_reserved(claim)
    });
    unreserved
        .map(|claim| {
            let mut fresh = (*claim).clone();
            let status = fresh.status.get_or_insert_default();
            let reserved = status.reserved_for.get_or_insert_default();
            reserved.push(ResourceClaimConsumerReference {
                api_group: None,
                name: pod.name().to_owned(),
                resource: "pods".to_owned(),
                uid: pod.uid().to_owned(),
            });
            Action::update_status(&fresh).ignore_absent()
        })
        .collect()
}

#[cfg(test)]
mod tests;
