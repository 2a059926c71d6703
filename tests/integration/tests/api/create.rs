//! Creation: the name, type and namespace of the body, and the metadata that the server sets.

use integration_tests::{Components, ReplyExt, Test, config_map};
use serde_json::json;

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

#[tokio::test]
async fn created_object_has_system_metadata() {
    let test = start().await;
    let object = test
        .create(&test.core("configmaps"), &config_map("c"))
        .await;
    let metadata = &object["metadata"];
    assert_eq!(
        (&object["apiVersion"], &object["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(metadata["name"], "c");
    assert_eq!(metadata["namespace"], test.namespace);
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(
        metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 0
    );
    let time = metadata["creationTimestamp"].as_str().unwrap();
    assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
    // A ConfigMap has no generation.
    assert_eq!(metadata.get("generation"), None);
}

#[tokio::test]
async fn system_metadata_of_the_client_is_ignored_on_create() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["selfLink"] = json!("/mine");
    object["metadata"]["generation"] = json!(7);
    let created = test.create(&test.core("configmaps"), &object).await;
    let metadata = &created["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(metadata.get("selfLink"), None);
}

#[tokio::test]
async fn create_with_a_resource_version_fails() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["resourceVersion"] = json!("5");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    reply.expect_failure(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
}

#[tokio::test]
async fn second_create_of_a_name_already_exists() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let status = test
        .admin
        .post(&path, &config_map("c"))
        .await
        .expect_failure(409, "AlreadyExists", "configmaps \"c\" already exists");
    assert_eq!(
        status["details"],
        json!({"name": "c", "kind": "configmaps"})
    );
}

#[tokio::test]
async fn generated_names_are_distinct_and_use_the_safe_alphabet() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = json!({"metadata": {"generateName": "gen-"}});
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let created = test.create(&path, &object).await;
        assert_eq!(created["metadata"]["generateName"], "gen-");
        names.insert(created["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 5);
    for name in names {
        let random = name.strip_prefix("gen-").unwrap();
        assert_eq!(random.len(), 5, "{name}");
        assert!(
            random
                .chars()
                .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn create_without_a_name_needs_a_name_or_generate_name() {
    let test = start().await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &json!({"metadata": {}}))
        .await;
    let status = reply.expect_causes(&[("metadata.name", "FieldValueRequired")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test]
async fn invalid_name_is_named_with_its_rule() {
    let test = start().await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("Bad_Name"))
        .await;
    let status = reply.expect_causes(&[("metadata.name", "FieldValueInvalid")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 \
         subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
}

#[tokio::test]
async fn body_without_type_takes_that_of_the_path() {
    let test = start().await;
    let created = test
        .create(
            &test.core("configmaps"),
            &json!({"metadata": {"name": "c"}}),
        )
        .await;
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["apiVersion"], "v1");
}

#[tokio::test]
async fn body_of_another_kind_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["kind"] = json!("Secret");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    let status = reply.expect_reason(400, "BadRequest");
    assert!(
        status["message"].as_str().unwrap().contains("Secret"),
        "{status}"
    );
    test.admin
        .get(&test.core("secrets/c"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn body_of_another_namespace_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["namespace"] = json!("default");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    reply.expect_failure(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

#[tokio::test]
async fn create_in_an_absent_namespace_is_not_found() {
    let test = start().await;
    let reply = test
        .admin
        .post("/api/v1/namespaces/absent/configmaps", &config_map("c"))
        .await;
    reply.expect_failure(404, "NotFound", "namespaces \"absent\" not found");
}

#[tokio::test]
async fn create_across_namespaces_is_not_allowed() {
    let test = start().await;
    let reply = test
        .admin
        .post("/api/v1/configmaps", &config_map("c"))
        .await;
    reply.expect_failure(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
}

#[tokio::test]
async fn dry_run_writes_nothing() {
    let test = start().await;
    let path = test.core("configmaps");
    let reply = test
        .admin
        .post(&format!("{path}?dryRun=All"), &config_map("c"))
        .await;
    let created = reply.expect_status(201).json();
    assert!(created["metadata"]["uid"].is_string());
    assert_eq!(created["metadata"].get("resourceVersion"), None);
    test.admin
        .get(&format!("{path}/c"))
        .await
        .expect_status(404);

    let object = test.create(&path, &config_map("c")).await;
    let dry = format!("{path}/c?dryRun=All");
    let change = json!({"data": {"a": "2"}});
    let patched = test
        .admin
        .merge_patch(&dry, &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(patched["data"], json!({"a": "2"}));
    let mut replaced = object.clone();
    replaced["data"] = json!({"a": "3"});
    test.admin.put(&dry, &replaced).await.expect_status(200);
    test.admin.delete(&dry).await.expect_status(200);
    test.admin
        .delete(&format!("{path}?dryRun=All"))
        .await
        .expect_status(200);
    assert_eq!(test.read(&format!("{path}/c")).await, object);
}

#[tokio::test]
async fn unknown_dry_run_value_is_invalid() {
    let test = start().await;
    let path = format!("{}?dryRun=Some", test.core("configmaps"));
    let reply = test.admin.post(&path, &config_map("c")).await;
    let status = reply.expect_reason(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("dryRun: Unsupported value: \"Some\": supported values: \"All\""),
        "{status}"
    );
}
