use super::*;
use crate::outcome::HookError;
use crate::patch::{PatchTarget, Patched, apply_response};
use crate::response::Response;

fn apply_as(patch_type: &str, object: &Value, patch: &str) -> Result<Option<Patched>, String> {
    let resource = GroupVersionResource::new("g", "v1", "widgets");
    let target = PatchTarget {
        hook: "h",
        resource: &resource,
        subresource: "",
    };
    let response = Response {
        allowed: true,
        patch: patch.as_bytes().to_vec(),
        patch_type: patch_type.to_owned(),
        ..Response::default()
    };
    apply_response(&target, &Widgets, object, &response).map_err(|error| match error {
        HookError::Calling { why, .. } => format!("calling: {why}"),
        HookError::Internal(error) => error.message,
        HookError::Denied(error) => panic!("{error}"),
    })
}

fn apply(object: &Value, patch: Value) -> Result<Option<Patched>, String> {
    apply_as("JSONPatch", object, &patch.to_string())
}

fn widget() -> Value {
    json!({"apiVersion": "g/v1", "kind": "Widget", "size": 1,
        "metadata": {"name": "x", "namespace": "n", "uid": "u", "creationTimestamp": "t"}})
}

#[test]
fn patch_changes_the_object() {
    let patch = json!([{"op": "replace", "path": "/size", "value": 2}]);
    let patched = apply(&widget(), patch).unwrap().unwrap();
    assert_eq!(patched.object["size"], 2);
    assert!(patched.warning.is_none());
}

#[test]
fn empty_patch_changes_nothing() {
    assert!(apply(&widget(), json!([])).unwrap().is_none());
    assert!(apply_as("", &widget(), "").unwrap().is_none());
}

#[test]
fn patch_that_can_not_be_used_is_an_error() {
    for (patch_type, patch, part) in [
        ("JSONPatch", "{}", "calling: received undecodable patch"),
        (
            "MergePatch",
            "[{}]",
            "calling: unsupported patch type \"MergePatch\"",
        ),
        (
            "JSONPatch",
            r#"[{"op":"remove","path":"/no"}]"#,
            "Internal error occurred",
        ),
        (
            "JSONPatch",
            r#"[{"op":"replace","path":"/size","value":"x"}]"#,
            "size is no number",
        ),
    ] {
        let error = apply_as(patch_type, &widget(), patch)
            .map(drop)
            .unwrap_err();
        assert!(error.contains(part), "{patch}: {error}");
    }
    let patch = json!([{"op": "add", "path": "/size", "value": 2}]);
    let error = apply(&Value::Null, patch).map(drop).unwrap_err();
    assert!(
        error.contains("not supported for this operation"),
        "{error}"
    );
}

#[test]
fn identity_is_fixed() {
    for field in [
        "/kind",
        "/apiVersion",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/uid",
    ] {
        for operation in [
            json!({"op": "replace", "path": field, "value": "y"}),
            json!({"op": "remove", "path": field}),
        ] {
            let error = apply(&widget(), json!([operation])).map(drop).unwrap_err();
            assert!(
                error.contains("attempted to change"),
                "{operation}: {error}"
            );
        }
    }
    let whole = json!([{"op": "replace", "path": "", "value": {"size": 3}}]);
    assert!(apply(&widget(), whole).is_err());
}

#[test]
fn name_may_be_set_where_there_is_none() {
    let mut unnamed = widget();
    unnamed["metadata"] = json!({"generateName": "x-"});
    let patch = json!([{"op": "add", "path": "/metadata/name", "value": "y"}]);
    let patched = apply(&unnamed, patch).unwrap().unwrap();
    assert_eq!(patched.object["metadata"]["name"], "y");
}

#[test]
fn system_metadata_is_restored() {
    let patch = json!([
        {"op": "replace", "path": "/metadata/creationTimestamp", "value": "never"},
        {"op": "add", "path": "/metadata/deletionTimestamp", "value": "now"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]);
    let metadata = apply(&widget(), patch).unwrap().unwrap().object["metadata"].take();
    let mut expect = widget()["metadata"].take();
    expect["labels"] = json!({"a": "b"});
    assert_eq!(metadata, expect);
}

#[test]
fn broken_managed_fields_are_restored_with_a_warning() {
    let add =
        |value: Value| json!([{"op": "add", "path": "/metadata/managedFields", "value": value}]);
    let entry = |operation: &str, form: &str| json!({"manager": "m", "operation": operation, "apiVersion": "v1", "fieldsType": form});
    for (broken, problem) in [
        (
            entry("Steal", "FieldsV1"),
            "operation must be `Apply` or `Update`",
        ),
        (
            entry("Update", ""),
            "missing fieldsType in managed fields entry 0",
        ),
        (json!({}), "operation must be `Apply` or `Update`"),
    ] {
        let patched = apply(&widget(), add(json!([broken]))).unwrap().unwrap();
        assert_eq!(patched.object, widget());
        let warning = patched.warning.unwrap_or_default();
        assert!(warning.ends_with(problem), "{warning}");
    }
    let valid = add(json!([entry("Update", "FieldsV1")]));
    let patched = apply(&widget(), valid).unwrap().unwrap();
    assert!(patched.warning.is_none());
    assert_eq!(
        patched.object["metadata"]["managedFields"][0]["manager"],
        "m"
    );
}

#[test]
fn empty_managed_fields_of_a_webhook_clear_the_owners() {
    let mut owned = widget();
    owned["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update",
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:size": {}}}]);
    let empty = json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}]);
    let patched = apply(&owned, empty).unwrap().unwrap();
    assert_eq!((patched.object, patched.warning), (widget(), None));
}
