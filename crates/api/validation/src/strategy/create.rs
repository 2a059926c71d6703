//! Strategies for new objects.

use super::{Generation, Status, generation, jobs, status};
use crate::defaults::qos_class;
use crate::dispatch::Kind;
use crate::tree::{get, has, list, make, remove, set, text};
use serde_json::{Value, json};

/// Implements `prepare_create`.
pub fn prepare(kind: Kind<'_>, object: &mut Value) {
    let at_first = matches!(
        generation(kind),
        Generation::Field(_) | Generation::Fixed | Generation::Any
    );
    if let Some(meta) = make(object, "metadata") {
        remove(meta, "generation");
        if at_first {
            set(meta, "generation", 1);
        }
    }
    if status(kind) != Status::Open && (kind.group, kind.kind) != ("", "Node") {
        set(object, "status", json!({}));
    }
    own(kind, object);
}

fn own(kind: Kind<'_>, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => {
            let class = qos_class(object);
            set(
                object,
                "status",
                json!({"phase": "Pending", "qosClass": class}),
            );
        }
        ("", "Service") => set(object, "status", json!({"loadBalancer": {}})),
        ("", "Namespace") => namespace(object),
        ("", "PersistentVolumeClaim") => set(object, "status", json!({"phase": "Pending"})),
        ("", "PersistentVolume") => {
            let now = text(get(object, "metadata"), "creationTimestamp").to_owned();
            set(
                object,
                "status",
                json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
            );
        }
        ("apps", "DaemonSet") => template_generation(object, 1),
        ("batch", "Job") => jobs::own_selector(object),
        ("networking.k8s.io", "Ingress") => set(object, "status", json!({"loadBalancer": {}})),
        ("storage.k8s.io", "VolumeAttachment") => set(object, "status", json!({"attached": false})),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("apiregistration.k8s.io", "APIService") => local_service(object),
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    set(object, "status", json!({"phase": "Active"}));
    let Some(spec) = make(object, "spec") else {
        return;
    };
    let mut finalizers = list(spec, "finalizers").to_vec();
    if !finalizers.iter().any(|f| f == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    set(spec, "finalizers", finalizers);
}

/// Sets the counter of template changes, an annotation since apps/v1.
pub fn template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = make(object, "metadata").and_then(|m| make(m, "annotations")) {
        set(
            annotations,
            "deprecated.daemonset.template.generation",
            generation.to_string(),
        );
    }
}

fn definition(object: &mut Value) {
    let spec = get(object, "spec");
    let storage: Vec<Value> = list(spec, "versions")
        .iter()
        .filter(|v| crate::tree::flag(v, "storage"))
        .filter_map(|v| v.get("name").cloned())
        .collect();
    let status = json!({"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage});
    set(object, "status", status);
}

fn local_service(object: &mut Value) {
    if has(get(object, "spec"), "service") {
        return;
    }
    let now = text(get(object, "metadata"), "creationTimestamp").to_owned();
    let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available"});
    set(object, "status", json!({"conditions": [condition]}));
}
