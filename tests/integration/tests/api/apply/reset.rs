//! Owners that a client resets by `managedFields: []` or `[{}]`.

use super::{config_map_of, fields_of, start};
use http::Method;
use integration_tests::protobuf::{Envelope, write_bytes};
use integration_tests::{Http2Client, PatchType, ReplyExt, Test, config_map, deployment};
use serde_json::{Value, json};

/// `metadata.managedFields` in protobuf.
const MANAGED_FIELDS: u64 = 17;

/// Applies the ConfigMap again, so that it has an owner.
async fn own(test: &Test, path: &str) -> Value {
    let reply = test.admin.force_apply(path, "one", &config_map("c")).await;
    let object = reply.expect_success().json();
    assert!(fields_of(&object, "one", "Apply").is_some(), "{object}");
    object
}

fn has_owners(object: &Value) -> bool {
    object["metadata"].get("managedFields").is_some()
}

/// Sends a PUT of a ConfigMap with these managed fields; returns whether it has owners afterwards.
async fn put_as(client: &Http2Client, path: &str, form: &str, body: Vec<u8>) -> bool {
    let headers = [("content-type", form), ("accept", "application/json")];
    let reply = client.send(Method::PUT, path, &headers, body).await;
    has_owners(&reply.expect_status(200).json())
}

#[tokio::test]
async fn update_with_an_empty_list_or_entry_resets_the_owners() {
    let test = start().await;
    let path = test.core("configmaps/c");
    for (sent, resets) in [
        (json!([]), true),
        (json!([{}]), true),
        (json!([null]), true),
        (Value::Null, false),
        (json!([{"operation": "Delete"}]), false),
        (json!([{}, {}]), false),
    ] {
        for form in ["application/json", "application/yaml"] {
            let mut object = own(&test, &path).await;
            object["metadata"]["managedFields"] = sent.clone();
            let body = object.to_string().into_bytes();
            let kept = put_as(&test.admin, &path, form, body).await;
            assert_eq!(kept, !resets, "{form} {sent}");
        }
    }
}

#[tokio::test]
async fn patch_with_an_empty_list_or_entry_resets_the_owners() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let merge = |sent: &Value| json!({"metadata": {"managedFields": sent}});
    let replace =
        |sent: &Value| json!([{"op": "replace", "path": "/metadata/managedFields", "value": sent}]);
    for (sent, resets) in [(json!([]), true), (json!([{}]), true), (Value::Null, false)] {
        for (form, patch) in [
            (PatchType::Merge, merge(&sent)),
            (PatchType::Strategic, merge(&sent)),
            (PatchType::Json, replace(&sent)),
        ] {
            own(&test, &path).await;
            let reply = test.admin.patch(form, &path, &patch).await;
            let object = reply.expect_status(200).json();
            assert_eq!(has_owners(&object), !resets, "{form:?} {sent}");
            assert_eq!(
                has_owners(&test.read(&path).await),
                !resets,
                "stored: {form:?} {sent}"
            );
        }
    }
    own(&test, &path).await;
    let patch = json!([{"op": "remove", "path": "/metadata/managedFields"}]);
    let reply = test.admin.patch(PatchType::Json, &path, &patch).await;
    assert!(has_owners(&reply.expect_status(200).json()), "absent keeps");
}

#[tokio::test]
async fn empty_entry_resets_the_owners_in_protobuf_and_no_entry_keeps_them() {
    let test = start().await;
    let path = test.core("configmaps/c");
    for (entries, resets) in [(1, true), (0, false), (2, false)] {
        own(&test, &path).await;
        let mut metadata = write_bytes(1, b"c");
        metadata.extend(write_bytes(3, test.namespace.as_bytes()));
        for _ in 0..entries {
            metadata.extend(write_bytes(MANAGED_FIELDS, b""));
        }
        let envelope = Envelope {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            object: write_bytes(1, &metadata),
        };
        let form = "application/vnd.kubernetes.protobuf";
        let kept = put_as(&test.admin, &path, form, envelope.write()).await;
        assert_eq!(kept, !resets, "{entries} entries");
    }
}

#[tokio::test]
async fn object_without_owners_has_none_until_the_next_apply() {
    let test = start().await;
    let path = test.core("configmaps/c");
    own(&test, &path).await;
    let reset = json!({"metadata": {"managedFields": []}});
    test.admin
        .merge_patch(&path, &reset)
        .await
        .expect_status(200);
    let again = test
        .admin
        .merge_patch(&path, &reset)
        .await
        .expect_status(200)
        .json();
    let change = json!({"data": {"a": "3"}});
    let changed = test
        .admin
        .merge_patch(&path, &change)
        .await
        .expect_status(200)
        .json();
    assert!(!has_owners(&changed), "{changed}");
    assert_ne!(
        again["metadata"]["resourceVersion"],
        changed["metadata"]["resourceVersion"]
    );
    let reply = test
        .admin
        .force_apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    let applied = reply.expect_status(200).json();
    assert!(
        fields_of(&applied, "before-first-apply", "Update").is_some(),
        "{applied}"
    );
    assert_eq!(
        fields_of(&applied, "two", "Apply"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
}

#[tokio::test]
async fn reset_without_another_change_is_written_once() {
    let test = start().await;
    let path = test.core("configmaps/c");
    own(&test, &path).await;
    let reset = json!({"metadata": {"managedFields": []}});
    let first = test
        .admin
        .merge_patch(&path, &reset)
        .await
        .expect_status(200)
        .json();
    let second = test
        .admin
        .merge_patch(&path, &reset)
        .await
        .expect_status(200)
        .json();
    assert_eq!(first, second);
}

#[tokio::test]
async fn reset_is_for_updates_of_the_object_itself() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["managedFields"] = json!([]);
    let created = test.create(&test.core("configmaps"), &object).await;
    assert!(has_owners(&created), "a created object has an owner");
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let patch = json!({"metadata": {"managedFields": []}});
    for subresource in ["status", "scale"] {
        let path = format!("{path}/{subresource}");
        test.admin
            .merge_patch(&path, &patch)
            .await
            .expect_status(200);
    }
    // Metadata of a template has no owners to reset.
    let patch = json!({"spec": {"template": {"metadata": {"managedFields": []}}}});
    let object = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200)
        .json();
    assert!(fields_of(&object, "one", "Apply").is_some(), "{object}");
    assert_eq!(
        object["spec"]["template"]["metadata"].get("managedFields"),
        None
    );
}

#[tokio::test]
async fn apply_of_a_reset_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps/c");
    for sent in [json!([]), json!([{}])] {
        let mut object = config_map("c");
        object["metadata"]["managedFields"] = sent;
        let reply = test.admin.apply(&path, "one", &object).await;
        reply.expect_failure(400, "BadRequest", "metadata.managedFields must be nil");
    }
}
