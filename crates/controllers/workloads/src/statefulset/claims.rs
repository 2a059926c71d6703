//! Claims of a StatefulSet: created before their pod, with the owner that the retention policy
//! requires.
//!
//! Deletion is left to the garbage collector: a claim to be deleted with its pod or its set is
//! owned by it.

use api_semantics::owners::{is_owned_by, owner_references};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use controllers_runtime::{Action, Meta, Write, object_reference, owner_reference};

use super::identity;
use super::view::View;

/// Creates an ordinal's missing claims. Returns false if a claim is being deleted, so that the pod
/// must wait.
pub fn ensure_claims(view: &View<'_>, ordinal: i32, actions: &mut Vec<Action>) -> bool {
    let mut free = true;
    let spec = view.set.spec.clone().unwrap_or_default();
    for template in spec.volume_claim_templates.iter().flatten() {
        let name = identity::claim_name(view.set, template.name(), ordinal);
        match view.claims.get(&name) {
            // A pod that starts with a claim in deletion would keep that claim alive and lose its
            // data when it ends.
            Some(claim) if claim.is_deleting() => free = false,
            Some(_) => {}
            None => actions.push(create_claim(view, template, &name, ordinal)),
        }
    }
    free
}

fn create_claim(
    view: &View<'_>,
    template: &PersistentVolumeClaim,
    name: &str,
    ordinal: i32,
) -> Action {
    let mut claim = template.clone();
    claim.status = None;
    claim.metadata.name = Some(name.to_owned());
    claim.metadata.namespace = view.set.meta().namespace.clone();
    let labels = claim.metadata.labels.get_or_insert_default();
    let selector = view
        .set
        .spec
        .as_ref()
        .and_then(|s| s.selector.match_labels.clone());
    // The selector's labels let users find the claims of a set, which keep no reference to it by
    // default.
    labels.extend(selector.unwrap_or_default());
    if retention_policy(view).0 {
        claim.metadata.owner_references = Some(vec![owner_reference(view.set)]);
    }
    let set = view.set.name();
    let pod = format!("{set}-{ordinal}");
    let success = format!("create Claim {name} Pod {pod} in StatefulSet {set} success");
    let failure =
        format!("create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {{error}}");
    let mut write = Write::create(&claim).notes(
        &object_reference(view.set),
        ("SuccessfulCreate", &success),
        ("FailedCreate", &failure),
    );
    write.tolerate.exists = true;
    write.into()
}

/// Sets the owners of a pod's claims that the retention policy requires.
pub fn update_owners(view: &View<'_>, pod: &Pod, condemned: bool, actions: &mut Vec<Action>) {
    let Some(ordinal) = identity::parse_ordinal(view.set, pod) else {
        return;
    };
    let spec = view.set.spec.clone().unwrap_or_default();
    let (deleted, scaled) = retention_policy(view);
    for template in spec.volume_claim_templates.iter().flatten() {
        let name = identity::claim_name(view.set, template.name(), ordinal);
        let Some(claim) = view.claims.get(&name) else {
            continue;
        };
        // Owned by the condemned pod: the claim is deleted with the pod, and a scale-up in between
        // keeps it.
        let by_pod = scaled && condemned;
        let by_set = deleted && !by_pod;
        let has = |uid: &str| is_owned_by(claim.meta(), uid);
        if has(view.set.uid()) == by_set && has(pod.uid()) == by_pod {
            continue;
        }
        // By name as well: a reference to an earlier pod of this name would delete the claim of its
        // successor.
        let ours = |r: &OwnerReference| {
            r.uid == view.set.uid() || (r.kind == "Pod" && r.name == pod.name())
        };
        let mut refs: Vec<_> = owner_references(claim.meta())
            .iter()
            .filter(|r| !ours(r))
            .cloned()
            .collect();
        refs.extend(by_set.then(|| owner_reference(view.set)));
        refs.extend(by_pod.then(|| owner_reference(pod)));
        let mut fresh = claim.as_ref().clone();
        fresh.metadata.owner_references = Some(refs);
        actions.push(Action::update(&fresh).ignore_absent());
    }
}

/// Returns whether claims are deleted: with the set, with a scaled-down pod.
fn retention_policy(view: &View<'_>) -> (bool, bool) {
    let policy = view
        .set
        .spec
        .as_ref()
        .and_then(|s| s.persistent_volume_claim_retention_policy.as_ref());
    let delete = |v: Option<&str>| v == Some("Delete");
    (
        delete(policy.and_then(|p| p.when_deleted.as_deref())),
        delete(policy.and_then(|p| p.when_scaled.as_deref())),
    )
}
