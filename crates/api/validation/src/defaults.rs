//! Defaulting: fills in absent fields.
//!
//! Invariant: idempotent. An explicit null counts as absent. An explicit zero remains, unless
//! upstream treats it as absent (plain strings and integers of its types).

mod admissionregistration;
mod core;
mod pod;
mod rest;
mod workloads;

pub(crate) use pod::qos_class;

use crate::dispatch::Kind;
use serde_json::Value;

/// Sets the defaults of an object of `kind`.
pub fn default_object(kind: Kind<'_>, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object),
        ("", "ReplicationController") => workloads::replication_controller(object),
        ("", name) => core::defaults(name, object),
        ("apps" | "batch", name) => workloads::defaults(name, object),
        ("admissionregistration.k8s.io", name) => admissionregistration::defaults(name, object),
        (group, name) => rest::defaults(group, kind.version, name, object),
    }
}
