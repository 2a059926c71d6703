//! ControllerRevisions: the template history of StatefulSets and DaemonSets, in the form that
//! kubectl reads.
//!
//! A revision's data is a patch that replaces `spec.template`, so that `kubectl rollout undo` can
//! apply it as it is. If an old template is used again, its revision gets a new number instead of a
//! copy.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use controllers_runtime::{
    Action, Meta, Object, Target, Verb, Write, controller_reference, hash, normalized, tree,
};

/// Label with a revision's hash.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Label of a pod with its revision.
pub const POD_LABEL: &str = "controller-revision-hash";

/// The revision of the current template, and the writes that it needs.
pub struct Current {
    /// The revision with its new number.
    pub revision: ControllerRevision,
    /// Creations and changes of numbers.
    pub actions: Vec<Action>,
}

/// Finds or creates the revision of `template`. `revisions` are the owned ones.
pub fn current<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    revisions: &[Arc<ControllerRevision>],
) -> Current {
    let wanted = data(template);
    let newest = revisions.iter().max_by_key(|r| r.revision);
    let next = newest.map_or(0, |r| r.revision) + 1;
    let equal = revisions
        .iter()
        .filter(|r| same_data(r, &wanted))
        .max_by_key(|r| r.revision);
    match equal {
        Some(found) if newest.is_some_and(|n| n.revision == found.revision) => Current {
            revision: found.as_ref().clone(),
            actions: Vec::new(),
        },
        Some(found) => {
            let mut renumbered = found.as_ref().clone();
            renumbered.revision = next;
            let actions = vec![Action::update(&renumbered)];
            Current {
                revision: renumbered,
                actions,
            }
        }
        None => {
            let revision = build(owner, template, wanted, collisions, next);
            let mut write = Write::create(&revision);
            write.if_exists = vec![collision(owner, collisions)];
            Current {
                revision,
                actions: vec![write.into()],
            }
        }
    }
}

/// Deletes unused revisions above `limit`, oldest first.
pub fn truncate(
    revisions: &[Arc<ControllerRevision>],
    in_use: &dyn Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> Vec<Action> {
    let mut idle: Vec<_> = revisions.iter().filter(|r| !in_use(r)).collect();
    idle.sort_by_key(|r| r.revision);
    let surplus = idle
        .len()
        .saturating_sub(usize::try_from(limit).unwrap_or(0));
    idle.into_iter()
        .take(surplus)
        .map(|r| Action::delete(r.as_ref()))
        .collect()
}

/// Returns the template of a revision.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.pointer("/spec/template")?;
    serde_json::from_value(template.clone()).ok()
}

fn data(template: &PodTemplateSpec) -> Value {
    let mut tree = serde_json::to_value(template).unwrap_or_default();
    if let Some(map) = tree.as_object_mut() {
        map.insert("$patch".to_owned(), Value::from("replace"));
    }
    json!({ "spec": { "template": tree } })
}

fn same_data(revision: &ControllerRevision, wanted: &Value) -> bool {
    let held = revision
        .data
        .as_ref()
        .map(|d| d.0.clone())
        .unwrap_or_default();
    normalized(held) == normalized(wanted.clone())
}

fn build<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    data: Value,
    collisions: Option<i32>,
    number: i64,
) -> ControllerRevision {
    let digest = hash::template(template, collisions);
    let mut labels = template
        .metadata
        .as_ref()
        .and_then(|m| m.labels.clone())
        .unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), digest.clone());
    if O::KIND == "DaemonSet" {
        labels.insert(POD_LABEL.to_owned(), digest.clone());
    }
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{digest}", owner.name())),
            namespace: owner.meta().namespace.clone(),
            labels: Some(labels),
            annotations: owner.meta().annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// Counts a collision, so that the next hash differs: another object has the name.
fn collision<O: Object>(owner: &O, collisions: Option<i32>) -> Action {
    let mut body = tree(owner);
    if let Some(map) = body.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        status["collisionCount"] = Value::from(collisions.unwrap_or(0) + 1);
    }
    Write::new(Verb::UpdateStatus, Target::of(owner), body).into()
}

/// Returns the owner's revisions, with the adoptions they need.
pub fn claim<O: Object>(
    owner: &O,
    selector: &LabelSelector,
    candidates: &[Arc<ControllerRevision>],
) -> controllers_runtime::claim::Claim<ControllerRevision> {
    controllers_runtime::claim::claim(
        owner,
        selector,
        candidates,
        |r| r.name().starts_with(owner.name()),
        &[],
    )
}
