//! Defaults of the built-in kinds, as upstream's `defaults.go` of each group sets them.
#![allow(clippy::unwrap_used)]

mod cluster;
mod pod_resources;
mod pods;
mod services;
mod storage;
mod workloads;

use api_defaulting::default_object;
use api_meta::Kind;
use serde_json::{Value, json};

fn default(group: &str, kind: &str, mut object: Value) -> Value {
    let kind = Kind {
        group,
        version: if group == "autoscaling" { "v2" } else { "v1" },
        kind,
        namespaced: true,
    };
    default_object(kind, &mut object);
    let once = object.clone();
    default_object(kind, &mut object);
    assert_eq!(object, once, "defaulting twice changes the object");
    object
}

/// Asserts that the values at the JSON pointers are the expected ones.
fn check(object: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        let found = object.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{pointer} of {object}");
    }
}

fn pod(spec: Value) -> Value {
    default("", "Pod", json!({"spec": spec}))
}

fn service(spec: Value) -> Value {
    default("", "Service", json!({"spec": spec}))
}

fn job(spec: Value) -> Value {
    default("batch", "Job", json!({"spec": spec}))
}
