//! Behaviour of patches that kubectl and controllers rely on.
#![allow(clippy::unwrap_used, missing_docs)]

use api_patch::{PatchError, json_patch, merge_patch, strategic_merge};
use api_schema::{Message, schema};
use serde_json::{Value, json};

fn message(name: &str) -> &'static Message {
    schema().message(&format!("k8s.io.api.{name}")).unwrap()
}

/// Merges a strategic patch into a pod's spec and returns the spec.
fn merge_spec(spec: Value, patch: Value) -> Value {
    let merged = strategic_merge(
        message("core.v1.Pod"),
        json!({"spec": spec}),
        &json!({"spec": patch}),
    );
    merged.unwrap()["spec"].clone()
}

fn apply(object: Value, patch: Value) -> Result<Value, PatchError> {
    json_patch(object, patch.to_string().as_bytes())
}

#[test]
fn containers_are_merged_by_name() {
    let spec = json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "1"}]});
    let merged = merge_spec(spec, json!({"containers": [{"name": "a", "image": "2"}]}));
    assert_eq!(
        merged["containers"],
        json!([{"name": "a", "image": "2", "args": ["x"]}, {"name": "b", "image": "1"}])
    );
}

#[test]
fn new_container_of_the_patch_comes_first() {
    let merged = merge_spec(
        json!({"containers": [{"name": "a"}]}),
        json!({"containers": [{"name": "b"}]}),
    );
    assert_eq!(merged["containers"], json!([{"name": "b"}, {"name": "a"}]));
}

#[test]
fn list_without_merge_key_is_replaced() {
    let spec = json!({"containers": [{"name": "a", "args": ["x", "y"]}]});
    let merged = merge_spec(spec, json!({"containers": [{"name": "a", "args": ["z"]}]}));
    assert_eq!(merged["containers"][0]["args"], json!(["z"]));
}

#[test]
fn delete_directive_removes_the_element_with_that_key() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let merged = merge_spec(
        spec,
        json!({"containers": [{"name": "a", "$patch": "delete"}]}),
    );
    assert_eq!(merged["containers"], json!([{"name": "b"}]));
}

#[test]
fn replace_directive_replaces_the_whole_list() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let merged = merge_spec(
        spec,
        json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
    );
    assert_eq!(merged["containers"], json!([{"name": "c"}]));
}

#[test]
fn set_element_order_sorts_and_keeps_elements_of_the_server() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "s"}, {"name": "b"}]});
    let merged = merge_spec(
        spec,
        json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
    );
    let names: Vec<&str> = merged["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    let position = |name: &str| names.iter().position(|n| *n == name).unwrap();
    assert!(position("b") < position("a"), "{names:?}");
    assert_eq!(names.len(), 3);
}

#[test]
fn set_element_order_names_every_element_that_the_patch_sets() {
    let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}});
    let object = json!({"spec": {"containers": [{"name": "a"}]}});
    let error = strategic_merge(message("core.v1.Pod"), object, &patch).unwrap_err();
    assert!(matches!(error, PatchError::Directive(_)), "{error:?}");
}

#[test]
fn retain_keys_removes_the_other_members_of_a_union() {
    let spec = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
    let merged = strategic_merge(
        message("apps.v1.Deployment"),
        json!({"spec": spec}),
        &json!({"spec": patch}),
    );
    assert_eq!(
        merged.unwrap()["spec"]["strategy"],
        json!({"type": "Recreate"})
    );
}

#[test]
fn retain_keys_rejects_members_that_it_does_not_name() {
    let patch =
        json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {"maxSurge": 1}}}});
    let object = json!({"spec": {"strategy": {"type": "RollingUpdate"}}});
    assert!(strategic_merge(message("apps.v1.Deployment"), object, &patch).is_err());
}

#[test]
fn finalizers_are_merged_as_a_set_and_deleted_by_value() {
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let pod = message("core.v1.Pod");
    let added = strategic_merge(
        pod,
        object.clone(),
        &json!({"metadata": {"finalizers": ["c", "a"]}}),
    );
    let mut finalizers: Vec<String> =
        serde_json::from_value(added.unwrap()["metadata"]["finalizers"].clone()).unwrap();
    finalizers.sort();
    assert_eq!(finalizers, ["a", "b", "c"]);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    let deleted = strategic_merge(pod, object, &patch).unwrap();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["b"]));
}

#[test]
fn null_removes_a_member_and_a_label() {
    let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n"}});
    let patch = json!({"metadata": {"labels": {"a": null}}, "spec": {"nodeName": null}});
    let merged = strategic_merge(message("core.v1.Pod"), object, &patch).unwrap();
    assert_eq!(
        merged,
        json!({"metadata": {"labels": {"b": "2"}}, "spec": {}})
    );
}

#[test]
fn directives_are_not_stored_with_new_values() {
    let patch = json!({"containers": [{"name": "a", "env": [{"$patch": "replace"}, {"name": "E", "value": null}]}]});
    let merged = merge_spec(json!({}), patch);
    assert_eq!(
        merged["containers"],
        json!([{"name": "a", "env": [{"name": "E"}]}])
    );
}

#[test]
fn element_without_its_merge_key_is_rejected() {
    let object = json!({"spec": {"containers": [{"name": "a"}]}});
    let patch = json!({"spec": {"containers": [{"image": "i"}]}});
    let error = strategic_merge(message("core.v1.Pod"), object, &patch)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("does not contain declared merge key: name"),
        "{error}"
    );
}

#[test]
fn ports_of_services_are_merged_by_number() {
    let service = message("core.v1.Service");
    let object = json!({"spec": {"ports": [{"port": 80, "name": "a"}]}});
    let patch = json!({"spec": {"ports": [{"port": 80, "nodePort": 30000}]}});
    let merged = strategic_merge(service, object, &patch).unwrap();
    assert_eq!(
        merged["spec"]["ports"],
        json!([{"port": 80, "name": "a", "nodePort": 30000}])
    );
}

#[test]
fn merge_patch_replaces_lists_and_removes_nulls() {
    let object = json!({"a": [1, 2], "b": {"c": 1, "d": 2}, "e": "text"});
    let patch = json!({"a": [3], "b": {"c": null}, "e": {"f": null, "g": 1}});
    assert_eq!(
        merge_patch(object, &patch),
        json!({"a": [3], "b": {"d": 2}, "e": {"g": 1}})
    );
}

#[test]
fn merge_patch_that_is_no_object_replaces_everything() {
    assert_eq!(merge_patch(json!({"a": 1}), &json!([1])), json!([1]));
}

#[test]
fn json_patch_operations_apply_in_order() {
    let patch = json!([
        {"op": "add", "path": "/list/0", "value": 0},
        {"op": "replace", "path": "/list/1", "value": "one"},
        {"op": "move", "from": "/list/2", "path": "/moved"},
        {"op": "copy", "from": "/moved", "path": "/list/-"},
        {"op": "remove", "path": "/list/0"},
        {"op": "test", "path": "/list", "value": ["one", 2]},
    ]);
    let patched = apply(json!({"list": [1, 2]}), patch).unwrap();
    assert_eq!(patched, json!({"list": ["one", 2], "moved": 2}));
}

#[test]
fn json_pointer_escapes_slash_and_tilde() {
    let patch =
        json!([{"op": "add", "path": "/metadata/annotations/example.com~1a~0b", "value": "v"}]);
    let patched = apply(json!({"metadata": {"annotations": {}}}), patch).unwrap();
    assert_eq!(
        patched["metadata"]["annotations"],
        json!({"example.com/a~b": "v"})
    );
}

#[test]
fn failed_test_leaves_the_object_unpatched() {
    let patch = json!([
        {"op": "add", "path": "/a", "value": 2},
        {"op": "test", "path": "/b", "value": 1},
    ]);
    let error = apply(json!({"a": 1}), patch).unwrap_err();
    assert_eq!(
        error,
        PatchError::Inapplicable("testing value /b failed: test failed".into())
    );
}

#[test]
fn path_that_does_not_exist_is_inapplicable() {
    for operation in [
        json!({"op": "remove", "path": "/none"}),
        json!({"op": "add", "path": "/none/a", "value": 1}),
        json!({"op": "replace", "path": "/list/5", "value": 1}),
        json!({"op": "copy", "from": "/none", "path": "/a"}),
        json!({"op": "bake", "path": "/a"}),
        json!({"op": "add", "value": 1}),
    ] {
        let outcome = apply(json!({"list": []}), json!([operation]));
        assert!(
            matches!(outcome, Err(PatchError::Inapplicable(_))),
            "{operation}: {outcome:?}"
        );
    }
}

#[test]
fn json_patch_that_is_no_list_of_operations_is_malformed() {
    for text in ["{}", "[", "null", ""] {
        let outcome = json_patch(json!({}), text.as_bytes());
        assert!(
            matches!(outcome, Err(PatchError::Malformed(_))),
            "{text:?}: {outcome:?}"
        );
    }
}
