#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

fn merged(original: Value, patch: Value) -> Result<Value, PatchError> {
    let message = api_schema::schema()
        .message("k8s.io.api.core.v1.Pod")
        .unwrap();
    strategic_merge(message, original, &patch)
}

fn pod() -> Value {
    json!({
        "metadata": {"annotations": {"keep": "yes"}, "finalizers": ["a"]},
        "spec": {
            "containers": [
                {"name": "one", "image": "one:1", "args": ["x"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                 "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                {"name": "two", "image": "two:1"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "nodeSelector": {"a": "b"}}})
}

fn names(value: &Value) -> Vec<&str> {
    let list = value
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .unwrap();
    list.iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect()
}

#[test]
fn lists_of_objects_are_merged_by_key() {
    let check = |containers: Value, order: Option<Value>, want: &[&str]| {
        let mut patch = json!({"spec": {"containers": containers}});
        if let Some(order) = order {
            patch["spec"]["$setElementOrder/containers"] = order;
        }
        let got = merged(pod(), patch.clone()).unwrap();
        assert_eq!(names(&got), want, "{patch}");
        got
    };
    let got = check(
        json!([{"name": "two", "image": "two:2"}]),
        None,
        &["one", "two"],
    );
    assert_eq!(got["spec"]["containers"][1]["image"], "two:2");
    check(
        json!([{"name": "three", "image": "three:1"}]),
        None,
        &["three", "one", "two"],
    );
    check(json!([{"name": "one", "$patch": "delete"}]), None, &["two"]);
    check(
        json!([{"$patch": "replace"}, {"name": "only"}]),
        None,
        &["only"],
    );
    let order = json!([{"name": "two"}, {"name": "one"}]);
    let got = check(
        json!([{"name": "one", "image": "one:9"}]),
        Some(order),
        &["two", "one"],
    );
    assert_eq!(got["spec"]["containers"][1]["image"], "one:9");
    let got = check(
        json!([{"name": "one", "env": [{"name": "B", "value": "3"}], "args": ["z"]}]),
        None,
        &["one", "two"],
    );
    assert_eq!(
        got["spec"]["containers"][0]["env"],
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "3"}])
    );
    assert_eq!(got["spec"]["containers"][0]["args"], json!(["z"]));
    let got = check(
        json!([{"name": "one", "ports": [{"containerPort": 81, "name": "web"}]}]),
        None,
        &["one", "two"],
    );
    assert_eq!(
        got["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80}, {"containerPort": 81, "name": "web"}])
    );
}

#[test]
fn maps_and_sets_are_merged() {
    let check = |patch: Value, pointer: &str, want: Option<Value>| {
        let got = merged(pod(), patch.clone()).unwrap();
        assert_eq!(got.pointer(pointer), want.as_ref(), "{patch}");
    };
    check(
        json!({"spec": {"nodeSelector": null}}),
        "/spec/nodeSelector",
        None,
    );
    check(
        json!({"spec": {"nodeSelector": {"$patch": "replace", "c": "d"}}}),
        "/spec/nodeSelector",
        Some(json!({"c": "d"})),
    );
    check(
        json!({"spec": {"nodeSelector": {"$patch": "delete"}}}),
        "/spec/nodeSelector",
        Some(json!({})),
    );
    check(
        json!({"spec": {"nodeSelector": {"c": "d"}}}),
        "/spec/nodeSelector",
        Some(json!({"a": "b", "c": "d"})),
    );
    check(
        json!({"metadata": {"finalizers": ["b"]}}),
        "/metadata/finalizers",
        Some(json!(["b", "a"])),
    );
    check(
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
        "/metadata/finalizers",
        Some(json!([])),
    );
    check(
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}),
        "/spec/volumes",
        Some(json!([{"name": "v", "hostPath": {"path": "/x"}}])),
    );
    check(
        json!({"spec": {"securityContext": {"runAsUser": 1, "sysctls": null}}}),
        "/spec/securityContext",
        Some(json!({"runAsUser": 1})),
    );
}

#[test]
fn contradictory_patches_are_rejected() {
    let text = |patch: Value| merged(pod(), patch).unwrap_err().to_string();
    assert!(
        text(json!({"spec": {"containers": [{"image": "x"}]}}))
            .contains("does not contain declared merge key: name")
    );
    assert!(
        text(json!({"spec": {"nodeSelector": {"$patch": "bogus"}}}))
            .starts_with("unknown patch type: bogus")
    );
    assert!(matches!(
        merged(pod(), json!([])),
        Err(PatchError::Malformed(_))
    ));
}
