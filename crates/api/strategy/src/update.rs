//! Strategies for changed objects.

use crate::claim::prepare_data_sources;
use crate::daemon_set::count_template_generation;
use crate::definition::{add_stored_version, is_same_definition};
use crate::disabled::drop_disabled_fields;
use crate::fields::{drop_config_source, keep_field, keep_secret_names};
use crate::pod::{change_only_ephemeral_containers, change_only_resources};
use crate::rules::{GenerationRule, StatusRule, generation_rule, status_rule};
use crate::service::prepare_service_update;
use crate::status::{prepare_approval, prepare_status_update};
use api_meta::Kind;
use api_meta::tree::{equal, get, has, int, make, remove, same, set, text};
use serde_json::Value;

/// Prepares a changed object. `subresource` is empty for the object itself.
pub fn prepare_update(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    match (kind.group, kind.kind, subresource) {
        (_, _, "status") => prepare_status_update(kind, new, old),
        ("certificates.k8s.io", _, "approval") => prepare_approval(new, old),
        ("", "Namespace", "finalize") => keep_field(new, old, "status"),
        ("", "Pod", "ephemeralcontainers") => change_only_ephemeral_containers(new, old),
        ("", "Pod", "resize") => change_only_resources(new, old),
        _ => prepare_object_update(kind, new, old),
    }
    count_generation(kind, subresource, new, old);
}

fn prepare_object_update(kind: Kind<'_>, new: &mut Value, old: &Value) {
    drop_disabled_fields(kind, new, Some(old));
    if status_rule(kind) != StatusRule::Open {
        keep_field(new, old, "status");
    }
    match (kind.group, kind.kind) {
        ("", "Namespace") => {
            // Only `finalize` changes them. Otherwise kubectl replace of an exported namespace
            // would release it.
            let finalizers = get(get(old, "spec"), "finalizers").clone();
            if let Some(spec) = make(new, "spec") {
                set(spec, "finalizers", finalizers);
            }
        }
        // The type is immutable, and clients that send data alone would fail.
        ("", "Secret") if text(new, "type").is_empty() => keep_field(new, old, "type"),
        ("", "PersistentVolumeClaim") => prepare_data_sources(new, Some(old)),
        ("", "ServiceAccount") => keep_secret_names(new),
        ("", "Node") => drop_config_source(new, Some(old)),
        ("", "Service") => prepare_service_update(new, old),
        ("apps", "DaemonSet") => count_template_generation(new, old),
        ("resource.k8s.io", "DeviceTaintRule") => set_taint_time(new, old),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => add_stored_version(new),
        // The approver has decided about the old spec.
        ("certificates.k8s.io", "CertificateSigningRequest") => keep_field(new, old, "spec"),
        _ => {}
    }
}

/// Sets the time of a taint whose effect has changed, unless the client has set another one: how
/// long a claim tolerates the taint counts from there.
fn set_taint_time(new: &mut Value, old: &Value) {
    let (taint, before) = (
        get(get(new, "spec"), "taint"),
        get(get(old, "spec"), "taint"),
    );
    let is_same = |field: &str| text(taint, field) == text(before, field);
    if is_same("effect") || !is_same("timeAdded") {
        return;
    }
    if let Some(taint) = make(new, "spec").and_then(|spec| make(spec, "taint")) {
        set(taint, "timeAdded", api_meta::time::now());
    }
}

fn count_generation(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    let before = int(get(old, "metadata"), "generation").unwrap_or(0);
    let changed = match generation_rule(kind) {
        // Some kinds of upstream have no generation, and clients compare for absence.
        GenerationRule::None => return,
        GenerationRule::Fixed => false,
        GenerationRule::Field(field) if kind.kind == "CustomResourceDefinition" => {
            !is_same_definition(get(new, field), get(old, field))
        }
        GenerationRule::Field(field) => !same(new, old, field),
        GenerationRule::Late => !same(new, old, "spec"),
        GenerationRule::Any => !is_same_but_version(new, old),
    };
    // A Deployment's controller observes its annotations too. The controller's own annotations are
    // written with the status.
    let annotated = kind.group == "apps"
        && kind.kind == "Deployment"
        && subresource.is_empty()
        && !same(get(new, "metadata"), get(old, "metadata"), "annotations");
    let changed = changed || annotated;
    // The kubelet observes the generation: a graceful deletion changes what it has to do
    // (KEP-5067).
    let deleting = has(get(new, "metadata"), "deletionTimestamp")
        && !has(get(old, "metadata"), "deletionTimestamp");
    let next = before + i64::from(changed || (deleting && kind.kind == "Pod"));
    if next > 0
        && let Some(meta) = make(new, "metadata")
    {
        set(meta, "generation", next);
    }
}

fn is_same_but_version(new: &Value, old: &Value) -> bool {
    let stripped = |v: &Value| {
        let mut v = v.clone();
        if let Some(meta) = make(&mut v, "metadata") {
            // All three change with every write, without a change of the content.
            for field in ["resourceVersion", "generation", "managedFields"] {
                remove(meta, field);
            }
        }
        v
    };
    equal(&stripped(new), &stripped(old))
}
