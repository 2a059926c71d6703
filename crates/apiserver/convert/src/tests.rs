#![allow(clippy::unwrap_used)]
mod versions;

use super::*;
use api_codec::envelope;
use serde_json::json;

fn resource(group: &str, version: &str, plural: &str) -> &'static Arc<Resource> {
    api_kinds::find(group, version, plural).unwrap()
}

#[test]
fn stored_object_is_read_back_unchanged() {
    let pods = resource("", "v1", "pods");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let bytes = encode_stored(pods, &pod);
    assert!(bytes.starts_with(&envelope::MAGIC));
    let decoded = decode_stored(pods, &bytes).unwrap();
    assert_eq!(decoded["metadata"]["labels"], pod["metadata"]["labels"]);
    assert_eq!(
        (&decoded["kind"], &decoded["apiVersion"]),
        (&json!("Pod"), &json!("v1"))
    );
    assert_eq!(decoded["spec"]["containers"][0]["image"], "i:1");
}

#[test]
fn object_stored_as_json_is_read_as_well() {
    let maps = resource("", "v1", "configmaps");
    let decoded = decode_stored(maps, br#"{"metadata":{"name":"m"},"data":{"a":"1"}}"#).unwrap();
    assert_eq!(
        (&decoded["kind"], &decoded["data"]),
        (&json!("ConfigMap"), &json!({"a": "1"}))
    );
}

#[test]
fn bytes_of_another_kind_are_rejected() {
    let (maps, secrets) = (
        resource("", "v1", "configmaps"),
        resource("", "v1", "secrets"),
    );
    let bytes = encode_stored(maps, &json!({"metadata": {"name": "m"}}));
    assert_eq!(
        decode_stored(secrets, &bytes),
        Err(StoredError("it holds a ConfigMap, not a Secret".into()))
    );
    assert!(decode_stored(secrets, b"not an object").is_err());
}

#[test]
fn event_converts_between_its_groups_and_back() {
    let (core, events) = (
        resource("", "v1", "events"),
        resource("events.k8s.io", "v1", "events"),
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "m", "count": 3,
        "involvedObject": {"kind": "Pod", "name": "p"}});
    let converted = convert_object(core, events, event);
    assert_eq!(
        (&converted["note"], &converted["regarding"]["name"]),
        (&json!("m"), &json!("p"))
    );
    assert_eq!(
        (&converted["apiVersion"], &converted["deprecatedCount"]),
        (&json!("events.k8s.io/v1"), &json!(3))
    );
    let back = convert_object(events, core, converted);
    assert_eq!(
        (&back["message"], &back["count"], &back["apiVersion"]),
        (&json!("m"), &json!(3), &json!("v1"))
    );
}

#[test]
fn storage_version_of_events_is_that_of_the_core_group() {
    let storage = storage_resource(resource("events.k8s.io", "v1", "events"));
    assert_eq!(storage.kind, "Event");
    let pods = resource("", "v1", "pods");
    assert!(Arc::ptr_eq(storage_resource(pods), pods));
}
