//! ControllerRevisions: the template history of StatefulSets and DaemonSets, in the form that
//! kubectl reads.
//!
//! A revision's data is a patch that replaces `spec.template`, so that `kubectl rollout undo` can
//! apply it as it is. If an old template is used again, its revision gets a new number instead of a
//! copy.

use std::sync::Arc;

use client::Decode;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PodTemplate, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

use controllers_runtime::{
    Action, Meta, Object, Target, Verb, Write, controller_reference, hash, normalize_tree, to_tree,
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
pub fn find_current<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
    revisions: &[Arc<ControllerRevision>],
) -> Current {
    let wanted = revision_data(template);
    let newest = revisions.iter().max_by_key(|r| r.revision);
    // Numbers only grow: `kubectl rollout undo` finds the previous revision by its number.
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
            let revision = build_revision(owner, template, wanted, collisions, next);
            let mut write = Write::create(&revision);
            // The name is a hash. If another object has it, a higher collision count gives another
            // name in the next reconcile.
            write.if_exists = vec![count_collision(owner, collisions)];
            Current {
                revision,
                actions: vec![write.into()],
            }
        }
    }
}

/// Deletes unused revisions above `limit`, oldest first.
pub fn truncate_history(
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
pub fn revision_template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.pointer("/spec/template")?;
    // As a PodTemplate: the client has decoders of kinds only.
    let whole = PodTemplate::decode_tree(&json!({ "template": template })).ok()?;
    whole.template
}

fn revision_data(template: &PodTemplateSpec) -> Value {
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
    // Not by hash: the API server may return fields that were absent when the revision was written.
    normalize_tree(held) == normalize_tree(wanted.clone())
}

fn build_revision<O: Object>(
    owner: &O,
    template: &PodTemplateSpec,
    data: Value,
    collisions: Option<i32>,
    number: i64,
) -> ControllerRevision {
    let digest = hash::hash_template(template, collisions);
    let mut labels = template
        .metadata
        .as_ref()
        .and_then(|m| m.labels.clone())
        .unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), digest.clone());
    // Upstream labels the revisions of a DaemonSet like its pods.
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
fn count_collision<O: Object>(owner: &O, collisions: Option<i32>) -> Action {
    let mut body = to_tree(owner);
    if let Some(map) = body.as_object_mut() {
        let status = map.entry("status").or_insert_with(|| json!({}));
        status["collisionCount"] = Value::from(collisions.unwrap_or(0) + 1);
    }
    Write::new(Verb::UpdateStatus, Target::of(owner), body).into()
}

/// Returns the owner's revisions, with the adoptions they need.
pub fn claim_revisions<O: Object>(
    owner: &O,
    selector: &LabelSelector,
    candidates: &[Arc<ControllerRevision>],
) -> controllers_runtime::claim::Claim<ControllerRevision> {
    controllers_runtime::claim::claim_objects(
        owner,
        selector,
        candidates,
        // Another set's selector may match, too. A revision is named after the set that created it.
        |r| r.name().starts_with(owner.name()),
        &[],
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};

    fn owner() -> StatefulSet {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n", "uid": "s"}}))
            .unwrap()
    }

    fn revision(name: &str, number: i64) -> Arc<ControllerRevision> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "revision": number}))
                .unwrap(),
        )
    }

    #[test]
    fn template_is_restored_from_its_revision() {
        let template: PodTemplateSpec =
            serde_json::from_value(json!({"metadata": {"labels": {"a": "b"}}})).unwrap();
        let found = find_current(&owner(), &template, None, &[]);
        assert_eq!(found.revision.revision, 1);
        assert_eq!(revision_template(&found.revision), Some(template));
    }

    #[test]
    fn collision_count_changes_the_name_of_a_revision() {
        let template = PodTemplateSpec::default();
        let name = |count| {
            let found = find_current(&owner(), &template, count, &[]);
            found.revision.metadata.name.unwrap()
        };
        assert_ne!(name(None), name(Some(1)));
        assert_eq!(name(None), name(Some(0)));
    }

    #[test]
    fn revision_of_a_daemon_set_carries_the_label_of_its_pods() {
        let set: DaemonSet = serde_json::from_value(json!({"metadata": {"name": "d"}})).unwrap();
        let label = |labels: Option<std::collections::BTreeMap<String, String>>| {
            labels.unwrap().contains_key(POD_LABEL)
        };
        let template = PodTemplateSpec::default();
        let daemon = find_current(&set, &template, None, &[]).revision;
        assert!(label(daemon.metadata.labels));
        let stateful = find_current(&owner(), &template, None, &[]).revision;
        assert!(!label(stateful.metadata.labels));
    }

    #[test]
    fn unused_revisions_above_the_limit_are_deleted_oldest_first() {
        let all = [
            revision("c", 3),
            revision("a", 1),
            revision("used", 2),
            revision("d", 4),
        ];
        let in_use = |r: &ControllerRevision| r.name() == "used";
        let deleted = |limit| describe_actions(&truncate_history(&all, &in_use, limit));
        assert!(deleted(3).is_empty());
        assert_eq!(deleted(2), ["delete ControllerRevision a"]);
        assert_eq!(deleted(0).len(), 3);
    }
}
