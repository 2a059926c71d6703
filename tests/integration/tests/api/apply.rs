//! Server-side apply and field ownership.

use integration_tests::{Components, ReplyExt, Test, config_map, deployment};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

fn config_map_of(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// Returns the fields that a manager owns.
fn fields_of<'a>(object: &'a Value, manager: &str, operation: &str) -> Option<&'a Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let entry = entries.iter().find(|e| {
        e["manager"] == manager && e["operation"] == operation && e.get("subresource").is_none()
    });
    entry.map(|entry| &entry["fieldsV1"])
}

#[tokio::test]
async fn apply_creates_and_owns_what_it_set() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"a": "1"})))
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(object["data"], json!({"a": "1"}));
    let entry = &object["metadata"]["managedFields"][0];
    assert_eq!(
        (
            &entry["manager"],
            &entry["operation"],
            &entry["apiVersion"],
            &entry["fieldsType"]
        ),
        (
            &json!("one"),
            &json!("Apply"),
            &json!("v1"),
            &json!("FieldsV1")
        )
    );
    assert_eq!(entry["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

#[tokio::test]
async fn same_apply_again_changes_nothing() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1"}));
    let first = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201)
        .json();
    let second = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(first, second);
}

#[tokio::test]
async fn apply_of_another_managers_fields_conflicts() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "two", &config_map_of(json!({"a": "2", "b": "2"})))
        .await;
    let status = reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b",
    );
    assert_eq!(
        status["details"]["causes"],
        json!([
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.b"},
        ])
    );
    let reply = test
        .admin
        .apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .data.a",
    );
    assert_eq!(test.read(&path).await["data"], json!({"a": "1", "b": "1"}));
}

#[tokio::test]
async fn forced_apply_takes_ownership() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .force_apply(&path, "two", &config_map_of(json!({"a": "2"})))
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(
        fields_of(&object, "one", "Apply"),
        Some(&json!({"f:data": {"f:b": {}}}))
    );
    assert_eq!(
        fields_of(&object, "two", "Apply"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
}

#[tokio::test]
async fn field_left_out_by_its_only_owner_is_removed() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "2"}));
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"b": "2"})))
        .await;
    assert_eq!(reply.expect_status(200).json()["data"], json!({"b": "2"}));
}

#[tokio::test]
async fn shared_field_is_removed_with_its_last_owner() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1"}));
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201);
    test.admin
        .apply(&path, "two", &object)
        .await
        .expect_status(200);
    let kept = test
        .admin
        .apply(&path, "one", &empty)
        .await
        .expect_status(200)
        .json();
    assert_eq!(kept["data"], json!({"a": "1"}));
    let removed = test
        .admin
        .apply(&path, "two", &empty)
        .await
        .expect_status(200)
        .json();
    assert_eq!(removed.get("data"), None);
}

#[tokio::test]
async fn update_takes_the_fields_that_it_changes() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = config_map_of(json!({"a": "1", "b": "1"}));
    let mut object = test
        .admin
        .apply(&path, "one", &object)
        .await
        .expect_status(201)
        .json();
    object["data"]["a"] = json!("9");
    let reply = test
        .admin
        .put(&format!("{path}?fieldManager=editor"), &object)
        .await;
    let updated = reply.expect_status(200).json();
    assert_eq!(
        fields_of(&updated, "editor", "Update"),
        Some(&json!({"f:data": {"f:a": {}}}))
    );
    assert_eq!(
        fields_of(&updated, "one", "Apply"),
        Some(&json!({"f:data": {"f:b": {}}}))
    );
    let reply = test
        .admin
        .apply(&path, "one", &config_map_of(json!({"a": "1", "b": "1"})))
        .await;
    let status = reply.expect_reason(409, "Conflict");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("Apply failed with 1 conflict: conflict with \"editor\" using v1"),
        "{message}"
    );
}

#[tokio::test]
async fn managers_own_entries_of_a_keyed_list() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    let object = |container: Value| {
        let mut object = deployment("d", 0);
        object["spec"]["template"]["spec"]["containers"] = json!([container]);
        object
    };
    let first = object(json!({"name": "a", "image": "example.com/a:1"}));
    test.admin
        .apply(&path, "one", &first)
        .await
        .expect_status(201);
    let second = object(json!({"name": "b", "image": "example.com/b:1"}));
    let both = test
        .admin
        .apply(&path, "two", &second)
        .await
        .expect_status(200)
        .json();
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap();
        containers
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&both), ["a", "b"]);
    let fields = fields_of(&both, "two", "Apply").unwrap();
    assert_eq!(
        fields["f:spec"]["f:template"]["f:spec"]["f:containers"],
        json!({"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}}})
    );
    let released =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    let left = test
        .admin
        .apply(&path, "two", &released)
        .await
        .expect_status(200)
        .json();
    assert_eq!(names(&left), ["a"]);
}

#[tokio::test]
async fn ports_of_a_service_are_keyed_by_port_and_protocol() {
    let test = start().await;
    let path = test.core("services/s");
    let service = |name: &str, protocol: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"name": name, "port": 53, "protocol": protocol}]}})
    };
    test.admin
        .apply(&path, "one", &service("tcp", "TCP"))
        .await
        .expect_status(201);
    let reply = test.admin.apply(&path, "two", &service("udp", "UDP")).await;
    let object = reply.expect_status(200).json();
    let ports: Vec<&str> = object["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    assert_eq!(ports, ["tcp", "udp"]);
    let fields = fields_of(&object, "two", "Apply").unwrap();
    assert!(
        fields["f:spec"]["f:ports"]["k:{\"port\":53,\"protocol\":\"UDP\"}"].is_object(),
        "{fields}"
    );
}

#[tokio::test]
async fn finalizers_are_owned_one_by_one() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = |finalizers: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": finalizers}});
    let apply = async |manager: &str, finalizers: Value| {
        let reply = test.admin.apply(&path, manager, &object(finalizers)).await;
        reply.expect_success().json()
    };
    apply("one", json!(["example.com/a"])).await;
    let both = apply("two", json!(["example.com/b"])).await;
    assert_eq!(
        both["metadata"]["finalizers"],
        json!(["example.com/a", "example.com/b"])
    );
    let left = apply("one", json!([])).await;
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/b"]));
}

#[tokio::test]
async fn atomic_map_conflicts_as_a_whole() {
    let test = start().await;
    let path = test.core("services/s");
    let service = |selector: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": selector, "ports": [{"port": 1}]}})
    };
    test.admin
        .apply(&path, "one", &service(json!({"a": "b"})))
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "two", &service(json!({"c": "d"})))
        .await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.selector",
    );
}

#[tokio::test]
async fn fields_of_status_are_kept_apart() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "status": {"observedGeneration": 1}});
    let reply = test
        .admin
        .apply(&format!("{path}/status"), "one", &status)
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["observedGeneration"], 1);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let subresources: Vec<Option<&str>> = entries
        .iter()
        .filter(|e| e["manager"] == "one")
        .map(|e| e.get("subresource").and_then(Value::as_str))
        .collect();
    assert_eq!(subresources, [None, Some("status")]);
}

#[tokio::test]
async fn apply_needs_a_field_manager() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .patch(integration_tests::PatchType::Apply, &path, &config_map("c"))
        .await;
    let status = reply.expect_causes(&[("fieldManager", "FieldValueRequired")]);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
}

#[tokio::test]
async fn force_is_for_apply_only() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let path = format!("{}?force=true", test.core("configmaps/c"));
    let status = test
        .admin
        .merge_patch(&path, &json!({}))
        .await
        .expect_causes(&[("force", "FieldValueForbidden")]);
    assert_eq!(
        status["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test]
async fn apply_of_managed_fields_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["managedFields"] =
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1"}]);
    let reply = test
        .admin
        .apply(&test.core("configmaps/c"), "one", &object)
        .await;
    reply.expect_failure(400, "BadRequest", "metadata.managedFields must be nil");
}

#[tokio::test]
async fn apply_of_another_kind_or_name_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let mut other_kind = config_map("c");
    other_kind["kind"] = json!("Secret");
    for object in [
        other_kind,
        config_map("other"),
        json!({"metadata": {"name": "c"}}),
    ] {
        let reply = test.admin.apply(&path, "one", &object).await;
        reply.expect_reason(400, "BadRequest");
    }
    test.admin.get(&path).await.expect_status(404);
}

#[tokio::test]
async fn apply_without_a_name_creates_nothing() {
    let test = start().await;
    let path = test.core("configmaps/c");
    for metadata in [json!({}), json!({"generateName": "c-"})] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let reply = test.admin.apply(&path, "one", &object).await;
        reply.expect_failure(
            400,
            "BadRequest",
            "the name of the object (c based on URL) was undeterminable: name must be provided",
        );
    }
    test.admin.get(&path).await.expect_status(404);
    test.admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201);
    // The merged object has the name of the existing one.
    let unnamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}});
    let reply = test.admin.apply(&path, "two", &unnamed).await;
    assert_eq!(reply.expect_status(200).json()["data"]["b"], "2");
}

#[tokio::test]
async fn abandoned_status_list_is_removed_from_an_applied_empty_struct() {
    let test = start().await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"],
            "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
            "validations": [{"expression": "true"}]}});
    test.admin.post(path, &policy).await.expect_status(201);
    let status = |checked: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "status": {"observedGeneration": 1, "typeChecking": checked}})
    };
    let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": "w"});
    let path = format!("{path}/p/status");
    let first = status(json!({"expressionWarnings": [warning]}));
    let reply = test.admin.apply(&path, "checker", &first).await;
    let checking = &reply.expect_status(200).json()["status"]["typeChecking"];
    assert_eq!(checking["expressionWarnings"][0]["warning"], "w");
    let reply = test.admin.apply(&path, "checker", &status(json!({}))).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["typeChecking"], json!({}), "{object}");
}

#[tokio::test]
async fn field_manager_above_128_characters_is_invalid() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .apply(&path, &"m".repeat(129), &config_map("c"))
        .await;
    reply.expect_causes(&[("fieldManager", "FieldValueTooLong")]);
}

#[tokio::test]
async fn apply_with_an_old_version_conflicts() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let first = test
        .admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201)
        .json();
    test.admin
        .merge_patch(&path, &json!({"data": {"z": "1"}}))
        .await
        .expect_status(200);
    let mut object = config_map_of(json!({"a": "2"}));
    object["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
    test.admin
        .apply(&path, "one", &object)
        .await
        .expect_reason(409, "Conflict");
}

#[tokio::test]
async fn managed_fields_are_cleared_by_an_empty_entry() {
    let test = start().await;
    let path = test.core("configmaps/c");
    test.admin
        .apply(&path, "one", &config_map("c"))
        .await
        .expect_status(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let cleared = test
        .admin
        .merge_patch(&path, &patch)
        .await
        .expect_status(200)
        .json();
    assert_eq!(cleared["metadata"].get("managedFields"), None);
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
async fn manager_of_an_update_is_the_clients_program() {
    let test = start().await;
    let client = test
        .admin
        .with_header("user-agent", "tool/v1.2 (linux/amd64) x");
    let reply = client
        .post(&test.core("configmaps"), &config_map("c"))
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(
        fields_of(&object, "tool", "Update"),
        Some(&json!({"f:data": {".": {}, "f:a": {}}}))
    );
}

fn scale_of(replicas: i64) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"},
        "spec": {"replicas": replicas}})
}

#[tokio::test]
async fn apply_of_a_scale_owns_the_replicas_of_the_deployment() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    let scale = format!("{path}/scale");
    test.admin
        .apply(&scale, "hpa", &scale_of(1))
        .await
        .expect_status(404);
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let reply = test.admin.apply(&scale, "hpa", &scale_of(3)).await;
    let status = reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas",
    );
    assert_eq!(status["details"]["causes"][0]["field"], ".spec.replicas");
    let reply = test.admin.force_apply(&scale, "hpa", &scale_of(3)).await;
    let object = reply.expect_status(200).json();
    assert_eq!(
        (&object["kind"], &object["spec"]["replicas"]),
        (&json!("Scale"), &json!(3))
    );
    let object = test.read(&path).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owner = entries.iter().find(|e| e["manager"] == "hpa").unwrap();
    assert_eq!(
        (
            &owner["operation"],
            &owner["apiVersion"],
            &owner["subresource"],
            &owner["fieldsV1"]
        ),
        (
            &json!("Apply"),
            &json!("apps/v1"),
            &json!("scale"),
            &json!({"f:spec": {"f:replicas": {}}})
        )
    );
    let one = fields_of(&object, "one", "Apply").unwrap();
    assert_eq!(one["f:spec"].get("f:replicas"), None);
    let reply = test.admin.apply(&path, "one", &deployment("d", 0)).await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\": .spec.replicas",
    );
}

#[tokio::test]
async fn apply_of_a_scale_checks_type_uid_and_version() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let scale = format!("{path}/scale");
    for (field, value, code) in [
        ("uid", "00000000-0000-0000-0000-000000000000", 409),
        ("resourceVersion", "1", 409),
        ("name", "other", 400),
    ] {
        let mut body = scale_of(0);
        body["metadata"][field] = json!(value);
        let reply = test.admin.apply(&scale, "one", &body).await;
        assert_eq!(reply.status, code, "{field}: {}", reply.json());
    }
    let reply = test.admin.apply(&scale, "one", &deployment("d", 0)).await;
    reply.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn apply_through_status_ignores_other_fields() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"l": "1"}, "annotations": {"n": "1"}},
        "spec": {"replicas": 7}, "status": {"observedGeneration": 1}});
    let reply = test
        .admin
        .apply(&format!("{path}/status"), "two", &body)
        .await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["spec"]["replicas"], 0);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|e| e["manager"] == "two").unwrap();
    assert_eq!(own["subresource"], "status");
    assert_eq!(
        own["fieldsV1"],
        json!({"f:metadata": {"f:annotations": {"f:n": {}}}, "f:status": {"f:observedGeneration": {}}})
    );
    // The status through the object itself is neither stored nor owned.
    let mut body = deployment("d", 0);
    body["status"] = json!({"observedGeneration": 9});
    let reply = test.admin.apply(&path, "one", &body).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["observedGeneration"], 1);
    assert_eq!(
        fields_of(&object, "one", "Apply").unwrap().get("f:status"),
        None
    );
}

#[tokio::test]
async fn owners_are_not_changed_through_a_subresource() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    test.admin
        .apply(&path, "one", &deployment("d", 0))
        .await
        .expect_status(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/status"), &patch)
        .await;
    let object = reply.expect_status(200).json();
    assert!(fields_of(&object, "one", "Apply").is_some(), "{object}");
}

#[tokio::test]
async fn apply_of_duplicate_elements_fails() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/a"]);
    let reply = test
        .admin
        .apply(&test.core("configmaps/c"), "one", &object)
        .await;
    let status: Value = reply.expect_status(500).json();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("failed to create typed patch object (")
            && message.ends_with(
                "; v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"example.com/a\"]"
            ),
        "{message}"
    );
}
