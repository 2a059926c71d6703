//! The ReplicaSet of a revision: its template, hash label and annotations.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use controllers_runtime::{Meta, controller_reference, hash, semantically_equal};

use super::bounds;

/// Label that distinguishes sets and pods of different revisions.
pub const HASH_LABEL: &str = "pod-template-hash";
/// Annotation with a set's revision number.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation with the Deployment's size when the set was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation with the Deployment's upper bound when the set was last scaled.
pub const MAX: &str = "deployment.kubernetes.io/max-replicas";
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// Returns whether the set has the Deployment's current template.
pub fn has_template(rs: &ReplicaSet, d: &Deployment) -> bool {
    // The hash label is added to the template of the set, so it must not take part in the
    // comparison.
    let bare = |template: Option<&PodTemplateSpec>| {
        let mut template = template.cloned().unwrap_or_default();
        if let Some(labels) = template.metadata.as_mut().and_then(|m| m.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        template
    };
    let wanted = d.spec.as_ref().map(|s| &s.template);
    // Not by hash: an API server of a newer version may default new fields of an old set, which
    // would start a rollout of every Deployment.
    semantically_equal(
        &bare(rs.spec.as_ref().and_then(|s| s.template.as_ref())),
        &bare(wanted),
    )
}

/// Returns a set's revision, 0 if it has none.
pub fn revision_of(rs: &ReplicaSet) -> i64 {
    rs.annotation(REVISION)
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

/// Builds the set of the Deployment's current template, without pods.
pub fn build_set(d: &Deployment) -> ReplicaSet {
    let spec = d.spec.clone().unwrap_or_default();
    let digest = hash::hash_template(
        &spec.template,
        d.status.as_ref().and_then(|s| s.collision_count),
    );
    let mut template = spec.template;
    let meta = template.metadata.get_or_insert_default();
    meta.labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_owned(), digest.clone());
    let mut selector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_owned(), digest.clone());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{digest}", d.name())),
            namespace: d.meta().namespace.clone(),
            labels: meta.labels.clone(),
            owner_references: Some(vec![controller_reference(d)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(0),
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// Copies the Deployment's annotations and raises the revision; an existing set keeps a history of
/// its revisions.
pub fn set_annotations(rs: &mut ReplicaSet, d: &Deployment, revision: i64, existing: bool) {
    let before = revision_of(rs);
    let old = rs.annotation(REVISION).map(str::to_owned);
    let notes = rs.metadata.annotations.get_or_insert_default();
    for (key, value) in d.meta().annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            notes.insert(key.clone(), value.clone());
        }
    }
    // Revisions only grow. A stale cache may compute a smaller one.
    if before >= revision {
        return;
    }
    notes.insert(REVISION.to_owned(), revision.to_string());
    if let Some(old) = old.filter(|_| existing) {
        let history = notes.entry(HISTORY.to_owned()).or_default();
        if history.is_empty() {
            *history = old;
        } else if !history.split(',').any(|r| r == old) {
            *history = format!("{history},{old}");
        }
    }
}

/// Writes the Deployment's size and upper bound into a set's annotations.
pub fn set_size_annotations(rs: &mut ReplicaSet, d: &Deployment) {
    let notes = rs.metadata.annotations.get_or_insert_default();
    let wanted = bounds::desired_replicas(d);
    notes.insert(DESIRED.to_owned(), wanted.to_string());
    notes.insert(MAX.to_owned(), (wanted + bounds::max_surge(d)).to_string());
}
