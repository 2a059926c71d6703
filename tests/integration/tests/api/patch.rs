//! JSON Patch, merge patches, strategic merge patches, and field validation.

use integration_tests::{Components, PatchType, ReplyExt, Test, config_map, deployment};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Creates a ConfigMap with the entry `a: 1`; returns its path.
async fn create_config_map(test: &Test) -> String {
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    test.core("configmaps/c")
}

/// Creates a Deployment with two containers, a volume and a toleration; returns its path.
async fn create_deployment(test: &Test) -> String {
    let mut object = deployment("d", 0);
    object["metadata"]["annotations"] = json!({"keep": "yes"});
    let spec = &mut object["spec"]["template"]["spec"];
    *spec = json!({
        "containers": [
            {"name": "one", "image": "example.com/one:1", "args": ["x", "y"],
                "ports": [{"containerPort": 80}, {"containerPort": 81}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "two", "image": "example.com/two:1"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "nodeSelector": {"a": "b"}});
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &object).await;
    format!("{path}/d")
}

/// Applies a strategic merge patch of the pod's spec to a new Deployment; returns that spec.
async fn patch_pod_spec(patch: Value) -> Value {
    let test = start().await;
    let path = create_deployment(&test).await;
    let patch = json!({"spec": {"template": {"spec": patch}}});
    let reply = test.admin.patch(PatchType::Strategic, &path, &patch).await;
    let mut object = reply.expect_status(200).json();
    object["spec"]["template"]["spec"].take()
}

fn container_names(spec: &Value) -> Vec<&str> {
    let containers = spec["containers"].as_array().unwrap();
    containers
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn strategic_patch_merges_containers_by_name() {
    let spec =
        patch_pod_spec(json!({"containers": [{"name": "two", "image": "example.com/two:2"}]}))
            .await;
    assert_eq!(container_names(&spec), ["one", "two"]);
    assert_eq!(spec["containers"][0]["image"], "example.com/one:1");
    assert_eq!(spec["containers"][1]["image"], "example.com/two:2");
}

#[tokio::test]
async fn strategic_patch_adds_a_container() {
    let spec =
        patch_pod_spec(json!({"containers": [{"name": "three", "image": "example.com/three:1"}]}))
            .await;
    assert_eq!(container_names(&spec), ["three", "one", "two"]);
}

#[tokio::test]
async fn strategic_patch_deletes_a_container() {
    let spec = patch_pod_spec(json!({"containers": [{"name": "one", "$patch": "delete"}]})).await;
    assert_eq!(container_names(&spec), ["two"]);
}

#[tokio::test]
async fn strategic_patch_replaces_a_list() {
    let only = json!({"name": "only", "image": "example.com/only:1"});
    let spec = patch_pod_spec(json!({"containers": [{"$patch": "replace"}, only]})).await;
    assert_eq!(container_names(&spec), ["only"]);
}

#[tokio::test]
async fn strategic_patch_orders_a_list() {
    let spec = patch_pod_spec(json!({
        "$setElementOrder/containers": [{"name": "two"}, {"name": "one"}],
        "containers": [{"name": "one", "image": "example.com/one:9"}]}))
    .await;
    assert_eq!(container_names(&spec), ["two", "one"]);
    assert_eq!(spec["containers"][1]["image"], "example.com/one:9");
}

#[tokio::test]
async fn strategic_patch_keeps_only_the_named_keys() {
    let spec = patch_pod_spec(json!({"volumes": [
        {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}))
    .await;
    assert_eq!(
        spec["volumes"],
        json!([{"name": "v", "hostPath": {"path": "/x", "type": ""}}])
    );
}

#[tokio::test]
async fn strategic_patch_merges_ports_by_container_port() {
    let spec = patch_pod_spec(json!({"containers": [
        {"name": "one", "ports": [{"containerPort": 81, "name": "web"}]}]}))
    .await;
    assert_eq!(
        spec["containers"][0]["ports"],
        json!([{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "name": "web", "protocol": "TCP"}])
    );
}

#[tokio::test]
async fn strategic_patch_merges_environment_by_name() {
    let spec = patch_pod_spec(json!({"containers": [
        {"name": "one", "env": [{"name": "B", "value": "3"}]}]}))
    .await;
    assert_eq!(
        spec["containers"][0]["env"],
        json!([{"name": "A", "value": "1"}, {"name": "B", "value": "3"}])
    );
}

#[tokio::test]
async fn strategic_patch_replaces_atomic_lists() {
    let spec = patch_pod_spec(json!({
        "tolerations": [{"key": "z", "operator": "Exists"}],
        "containers": [{"name": "one", "args": ["z"]}]}))
    .await;
    assert_eq!(
        spec["tolerations"],
        json!([{"key": "z", "operator": "Exists"}])
    );
    assert_eq!(spec["containers"][0]["args"], json!(["z"]));
}

#[tokio::test]
async fn strategic_patch_removes_nulls_and_replaces_maps() {
    let spec = patch_pod_spec(json!({"nodeSelector": null})).await;
    assert_eq!(spec.get("nodeSelector"), None);
    let spec = patch_pod_spec(json!({"nodeSelector": {"$patch": "replace", "c": "d"}})).await;
    assert_eq!(spec["nodeSelector"], json!({"c": "d"}));
}

#[tokio::test]
async fn strategic_patch_treats_finalizers_as_a_set() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    test.create(&test.core("configmaps"), &object).await;
    let path = test.core("configmaps/c");
    let patch = json!({"metadata": {"finalizers": ["example.com/b"]}});
    let reply = test.admin.patch(PatchType::Strategic, &path, &patch).await;
    let mut both: Vec<String> =
        serde_json::from_value(reply.expect_status(200).json()["metadata"]["finalizers"].take())
            .unwrap();
    both.sort();
    assert_eq!(both, ["example.com/a", "example.com/b"]);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    let reply = test.admin.patch(PatchType::Strategic, &path, &patch).await;
    assert_eq!(
        reply.expect_status(200).json()["metadata"]["finalizers"],
        json!(["example.com/b"])
    );
}

#[tokio::test]
async fn strategic_patch_of_an_unknown_directive_fails() {
    let test = start().await;
    let path = create_deployment(&test).await;
    let patch = json!({"spec": {"strategy": {"$patch": "bogus"}}});
    let status = test
        .admin
        .patch(PatchType::Strategic, &path, &patch)
        .await
        .expect_reason(500, "");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("unknown patch type: bogus"),
        "{status}"
    );
}

#[tokio::test]
async fn json_patch_operations_change_the_object() {
    let test = start().await;
    let path = create_config_map(&test).await;
    for (operations, data) in [
        (
            json!([{"op": "add", "path": "/data/b", "value": "2"}]),
            json!({"a": "1", "b": "2"}),
        ),
        (
            json!([{"op": "replace", "path": "/data/a", "value": "9"}]),
            json!({"a": "9", "b": "2"}),
        ),
        (
            json!([{"op": "remove", "path": "/data/b"}]),
            json!({"a": "9"}),
        ),
        (
            json!([{"op": "copy", "from": "/data/a", "path": "/data/z"}]),
            json!({"a": "9", "z": "9"}),
        ),
        (
            json!([{"op": "move", "from": "/data/a", "path": "/data/m"}]),
            json!({"m": "9", "z": "9"}),
        ),
        (
            json!([{"op": "test", "path": "/data/m", "value": "9"}, {"op": "add", "path": "/data/t", "value": "1"}]),
            json!({"m": "9", "z": "9", "t": "1"}),
        ),
    ] {
        let reply = test.admin.patch(PatchType::Json, &path, &operations).await;
        assert_eq!(
            reply.expect_status(200).json()["data"],
            data,
            "{operations}"
        );
    }
}

#[tokio::test]
async fn json_patch_reads_escaped_keys() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let operations = json!([
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/x.y~1z", "value": "t"}]);
    let reply = test.admin.patch(PatchType::Json, &path, &operations).await;
    assert_eq!(
        reply.expect_status(200).json()["metadata"]["annotations"],
        json!({"x.y/z": "t"})
    );
}

#[tokio::test]
async fn failed_json_patch_writes_nothing() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let before = test.read(&path).await;
    for operations in [
        json!([{"op": "test", "path": "/data/a", "value": "7"}]),
        json!([{"op": "add", "path": "/data/b", "value": "2"}, {"op": "test", "path": "/data/a", "value": "7"}]),
        json!([{"op": "add", "path": "/none/a", "value": "7"}]),
        json!([{"op": "remove", "path": "/data/none"}]),
        json!([{"op": "bogus", "path": "/data/a"}]),
        json!([{"op": "replace", "path": "/data", "value": "text"}]),
    ] {
        let reply = test.admin.patch(PatchType::Json, &path, &operations).await;
        assert_eq!(reply.status, 422, "{operations}: {}", reply.text());
        reply.expect_reason(422, "Invalid");
    }
    let reply = test
        .admin
        .patch(PatchType::Json, &path, &json!({"op": "add"}))
        .await;
    reply.expect_reason(400, "BadRequest");
    assert_eq!(test.read(&path).await, before);
}

#[tokio::test]
async fn merge_patch_removes_nulls_and_replaces_lists() {
    let test = start().await;
    let path = create_deployment(&test).await;
    let patch = json!({
        "metadata": {"annotations": {"keep": null, "new": "x"}},
        "spec": {"template": {"spec": {"containers": [{"name": "solo", "image": "example.com/solo:1"}]}}}});
    let object = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200)
        .json();
    assert_eq!(object["metadata"]["annotations"], json!({"new": "x"}));
    let spec = &object["spec"]["template"]["spec"];
    assert_eq!(container_names(spec), ["solo"]);
    assert_eq!(spec["nodeSelector"], json!({"a": "b"}));
}

#[tokio::test]
async fn merge_patch_with_an_invalid_result_is_rejected() {
    let test = start().await;
    let path = create_deployment(&test).await;
    let before = test.read(&path).await;
    let patch = async |patch: Value| test.admin.merge_patch(&path, &patch).await;
    patch(json!({"spec": {"replicas": -1}}))
        .await
        .expect_causes(&[("spec.replicas", "FieldValueInvalid")]);
    patch(json!({"spec": {"replicas": "many"}}))
        .await
        .expect_reason(422, "Invalid");
    patch(json!({"spec": {"selector": {"matchLabels": {"other": "x"}}}}))
        .await
        .expect_reason(422, "Invalid");
    patch(json!({"metadata": {"name": "other"}}))
        .await
        .expect_failure(
            400,
            "BadRequest",
            "the name of the object (other) does not match the name on the URL (d)",
        );
    assert_eq!(test.read(&path).await, before);
}

#[tokio::test]
async fn patch_of_an_absent_object_is_not_found() {
    let test = start().await;
    let path = test.core("configmaps/none");
    for patch_type in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        let patch = if patch_type == PatchType::Json {
            json!([])
        } else {
            json!({})
        };
        let reply = test.admin.patch(patch_type, &path, &patch).await;
        reply.expect_failure(404, "NotFound", "configmaps \"none\" not found");
    }
}

#[tokio::test]
async fn selector_of_a_deployment_is_immutable() {
    let test = start().await;
    let path = create_deployment(&test).await;
    let labels = json!({"app": "other"});
    let patch = json!({"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}});
    let status = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_causes(&[("spec.selector", "FieldValueInvalid")]);
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with(": field is immutable"), "{message}");
}

const UNKNOWN_FIELDS: &str =
    r#"{"metadata":{"name":"x","lables":{"a":"b"}},"data":{"a":"1","a":"2"},"bogus":1}"#;

#[tokio::test]
async fn strict_validation_names_unknown_and_duplicate_fields() {
    let test = start().await;
    let path = format!("{}?fieldValidation=Strict", test.core("configmaps"));
    let reply = test
        .admin
        .post_as(&path, "application/json", UNKNOWN_FIELDS)
        .await;
    reply.expect_failure(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
         \"metadata.lables\", duplicate field \"data.a\", unknown field \"bogus\"",
    );
    test.admin
        .get(&test.core("configmaps/x"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn warn_validation_creates_and_warns() {
    let test = start().await;
    for query in ["", "?fieldValidation=Warn"] {
        let path = format!("{}{query}", test.core("configmaps"));
        let reply = test
            .admin
            .post_as(&path, "application/json", UNKNOWN_FIELDS)
            .await;
        let mut warnings = reply.warnings();
        warnings.sort();
        assert_eq!(
            warnings,
            [
                "299 - \"duplicate field \\\"data.a\\\"\"",
                "299 - \"unknown field \\\"bogus\\\"\"",
                "299 - \"unknown field \\\"metadata.lables\\\"\"",
            ]
        );
        assert_eq!(reply.expect_status(201).json()["data"], json!({"a": "2"}));
        test.admin
            .delete(&test.core("configmaps/x"))
            .await
            .expect_status(200);
    }
}

#[tokio::test]
async fn ignore_validation_creates_in_silence() {
    let test = start().await;
    let path = format!("{}?fieldValidation=Ignore", test.core("configmaps"));
    let reply = test
        .admin
        .post_as(&path, "application/json", UNKNOWN_FIELDS)
        .await;
    assert_eq!(reply.warnings(), [""; 0]);
    reply.expect_status(201);
}

#[tokio::test]
async fn unknown_field_validation_is_invalid() {
    let test = start().await;
    let path = format!("{}?fieldValidation=Loud", test.core("configmaps"));
    let status = test
        .admin
        .post(&path, &config_map("c"))
        .await
        .expect_reason(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("fieldValidation: Unsupported value: \"Loud\""),
        "{status}"
    );
}

#[tokio::test]
async fn strict_validation_covers_patches() {
    let test = start().await;
    let path = create_deployment(&test).await;
    let strict = format!("{path}?fieldValidation=Strict");
    for (patch_type, patch) in [
        (PatchType::Merge, json!({"spec": {"replica": 1}})),
        (PatchType::Strategic, json!({"spec": {"replica": 1}})),
        (
            PatchType::Json,
            json!([{"op": "add", "path": "/spec/replica", "value": 1}]),
        ),
    ] {
        let reply = test.admin.patch(patch_type, &strict, &patch).await;
        assert!([400, 422].contains(&reply.status), "{patch_type:?}");
        let text = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(
            text.ends_with("strict decoding error: unknown field \"spec.replica\""),
            "{patch_type:?}: {text}"
        );
    }
}
