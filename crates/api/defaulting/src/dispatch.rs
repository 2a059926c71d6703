//! Table of the defaults of each kind.

use crate::{admissionregistration, core, other_groups, pod, workloads};
use api_meta::Kind;
use serde_json::Value;

/// Sets the defaults of an object of `kind`.
pub fn default_object(kind: Kind<'_>, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::default_pod(object),
        ("", "PodTemplate") => pod::default_template_object(object),
        ("", "ReplicationController") => workloads::default_replication_controller(object),
        ("", name) => core::default_core_kind(name, object),
        ("apps" | "batch", name) => workloads::default_workload(name, object),
        ("admissionregistration.k8s.io", name) => {
            admissionregistration::default_admission_kind(name, object)
        }
        (group, name) => other_groups::default_other_kind(group, kind.version, name, object),
    }
}
