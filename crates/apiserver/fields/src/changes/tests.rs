//! Tests with very many owners.

#![allow(clippy::unwrap_used)]

use crate::{ApplyError, Versions, Writer, apply_intent, track_update};
use serde_json::{Map, Value, json};
use std::time::Duration;

const COUNT: usize = 10_000;

fn writer() -> Writer<'static> {
    Writer {
        manager: "m",
        api_version: "v1",
        subresource: "",
        schema: &api_kinds::find("", "v1", "configmaps").unwrap().schema,
        versions: Versions::NONE,
        ignored: &[],
        now: "2026-01-01T00:00:00Z",
    }
}

/// Returns a ConfigMap with `COUNT` fields and as many owners, each of the first field.
fn object_with_owners(value: &str) -> Value {
    let data: Map<String, Value> = (0..COUNT)
        .map(|n| (format!("k{n}"), value.into()))
        .collect();
    let owner = |n| {
        json!({"manager": format!("a{n}"), "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k0": {}}}})
    };
    let owners: Vec<Value> = (0..COUNT).map(owner).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "managedFields": owners}, "data": data})
}

/// Calls `write` in a thread, so that a test fails at its deadline.
fn finish_in_time<T: Send + 'static>(write: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(write()));
    // With a pass over all fields for each owner, it takes minutes.
    result.recv_timeout(Duration::from_secs(30)).unwrap()
}

#[test]
fn create_with_very_many_owners_and_fields_ends() {
    let owners = finish_in_time(|| {
        let mut new = object_with_owners("1");
        track_update(&writer(), None, &mut new).unwrap();
        new["metadata"]["managedFields"].as_array().unwrap().len()
    });
    assert_eq!(owners, 1);
}

#[test]
fn apply_with_very_many_conflicts_and_fields_ends() {
    let result = finish_in_time(|| {
        let live = object_with_owners("1");
        let mut intent = object_with_owners("2");
        intent["metadata"] = json!({"name": "a"});
        apply_intent(&writer(), Some(&live), &intent, false)
    });
    assert!(matches!(result, Err(ApplyError::Conflicts(all)) if all.len() == 500));
}
