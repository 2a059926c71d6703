//! Strategies for new objects.

use crate::claim::prepare_data_sources;
use crate::daemon_set::set_template_generation;
use crate::disabled::drop_disabled_fields;
use crate::fields::{drop_config_source, keep_secret_names};
use crate::jobs::generate_selector;
use crate::new_pod::{apply_label_keys, copy_apparmor_annotations};
use crate::rules::{GenerationRule, StatusRule, generation_rule, status_rule};
use crate::service::fill_cluster_ips;
use api_meta::Kind;
use api_meta::tree::{flag, get, has, list, make, remove, set, text};
use api_semantics::qos::compute_tree_qos;
use serde_json::{Value, json};

/// Prepares a new object: drops fields that only the server or a controller writes, and sets
/// initial values. `metadata.uid` and `metadata.creationTimestamp` must be set already.
pub fn prepare_create(kind: Kind<'_>, object: &mut Value) {
    let at_first = matches!(
        generation_rule(kind),
        GenerationRule::Field(_) | GenerationRule::Fixed | GenerationRule::Any
    );
    if let Some(meta) = make(object, "metadata") {
        // Generation belongs to the server. Restored backups contain the old one.
        remove(meta, "generation");
        if at_first {
            set(meta, "generation", 1);
        }
    }
    // A kubelet registers its node with the status in one request.
    if status_rule(kind) != StatusRule::Open && (kind.group, kind.kind) != ("", "Node") {
        set(object, "status", json!({}));
    }
    drop_disabled_fields(kind, object, None);
    set_initial_values(kind, object);
}

fn set_initial_values(kind: Kind<'_>, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => {
            // The class is computed once and never again: the kubelet has built cgroups from it.
            let class = compute_tree_qos(object);
            let mut status = json!({"phase": "Pending", "qosClass": class});
            // Before the scheduler sees the pod, so that its author sees at once why it waits.
            if !list(get(object, "spec"), "schedulingGates").is_empty() {
                let gated = json!({"type": "PodScheduled", "status": "False",
                    "reason": "SchedulingGated", "lastProbeTime": null,
                    "lastTransitionTime": api_meta::time::now(),
                    "message": "Scheduling is blocked due to non-empty scheduling gates"});
                set(&mut status, "conditions", vec![gated]);
            }
            set(object, "status", status);
            apply_label_keys(object);
            copy_apparmor_annotations(object);
        }
        ("", "Service") => {
            set(object, "status", json!({"loadBalancer": {}}));
            fill_cluster_ips(object);
        }
        ("", "Namespace") => prepare_namespace(object),
        ("", "PersistentVolumeClaim") => {
            set(object, "status", json!({"phase": "Pending"}));
            prepare_data_sources(object, None);
        }
        ("", "ServiceAccount") => keep_secret_names(object),
        // The field is not used any more.
        ("", "Node") => drop_config_source(object, None),
        ("", "PersistentVolume") => {
            let now = text(get(object, "metadata"), "creationTimestamp").to_owned();
            set(
                object,
                "status",
                json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
            );
        }
        ("apps", "DaemonSet") => set_template_generation(object, 1),
        ("batch", "Job") => generate_selector(object),
        ("networking.k8s.io", "Ingress") => set(object, "status", json!({"loadBalancer": {}})),
        ("storage.k8s.io", "VolumeAttachment") => set(object, "status", json!({"attached": false})),
        // A status that exists is final.
        ("resource.k8s.io", "ResourcePoolStatusRequest") => drop(remove(object, "status")),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => prepare_definition(object),
        ("apiregistration.k8s.io", "APIService") => report_local_service(object),
        _ => {}
    }
}

fn prepare_namespace(object: &mut Value) {
    set(object, "status", json!({"phase": "Active"}));
    let Some(spec) = make(object, "spec") else {
        return;
    };
    let mut finalizers = list(spec, "finalizers").to_vec();
    // The namespace controller removes it after the content is deleted.
    if !finalizers.iter().any(|f| f == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    set(spec, "finalizers", finalizers);
}

fn prepare_definition(object: &mut Value) {
    let spec = get(object, "spec");
    let storage: Vec<Value> = list(spec, "versions")
        .iter()
        // Objects may be stored in any version that is listed here, until a migration removes it.
        .filter(|v| flag(v, "storage"))
        .filter_map(|v| v.get("name").cloned())
        .collect();
    let status = json!({"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": storage});
    set(object, "status", status);
}

fn report_local_service(object: &mut Value) {
    // The availability controller probes services. The local groups have none.
    if has(get(object, "spec"), "service") {
        return;
    }
    let now = text(get(object, "metadata"), "creationTimestamp").to_owned();
    let condition = json!({"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available"});
    set(object, "status", json!({"conditions": [condition]}));
}
