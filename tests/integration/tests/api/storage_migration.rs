//! The storage version migrator: a definition whose storage version changes, and built-in kinds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Http2Client, find_condition, has_condition, wait_for, wait_for_value};
use serde_json::{Value, json};
use testkit_control_plane::{ControlPlane, Options, WebhookReply, WebhookServer};

const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const WIDGETS: &str = "/apis/example.com/v2/namespaces/default/widgets";
const GATE: &str = "--feature-gates=StorageVersionMigrator=true";

async fn start() -> ControlPlane {
    let plane = ControlPlane::start_with(Options {
        api_server: vec![
            "--runtime-config=storagemigration.k8s.io/v1beta1=true".to_owned(),
            GATE.to_owned(),
        ],
        ..Options::default()
    })
    .await;
    plane.start_controllers_with("storage-version-migrator-controller", &[GATE]);
    plane
}

fn definition(versions: &[(&str, bool)]) -> Value {
    let version = |(name, storage): &(&str, bool)| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"}}})
}

async fn create_definition(admin: &Http2Client) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let old = definition(&[("v1", true), ("v2", false)]);
    admin.post(definitions, &old).await.expect_status(201);
    wait_for("the definition is established", async || {
        has_condition(&admin.get(DEFINITION).await.json(), "Established")
    })
    .await;
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name},
        "spec": {"size": 1}})
}

/// Creates a widget and a webhook for its updates; waits until the webhook answers them with a code.
async fn create_with_webhook(admin: &Http2Client, client_config: &Value, code: u16) {
    create_definition(admin).await;
    admin.post(WIDGETS, &widget("a")).await.expect_status(201);
    let rule = json!({"operations": ["UPDATE"], "apiGroups": ["example.com"],
        "apiVersions": ["*"], "resources": ["widgets"]});
    let hook = json!({"name": "w.example.com", "clientConfig": client_config, "rules": [rule],
        "admissionReviewVersions": ["v1"], "sideEffects": "None"});
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [hook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(path, &configuration).await.expect_status(201);
    wait_for("the webhook is effective", async || {
        let (path, change) = (
            format!("{WIDGETS}/a?dryRun=All"),
            json!({"spec": {"size": 2}}),
        );
        admin.merge_patch(&path, &change).await.status == code
    })
    .await;
}

/// Replaces the versions of the definition.
async fn set_versions(admin: &Http2Client, versions: &[(&str, bool)]) -> u16 {
    let spec = definition(versions)["spec"].take();
    let patch = json!({"spec": {"versions": spec["versions"]}});
    admin.merge_patch(DEFINITION, &patch).await.status
}

async fn storage_hash(admin: &Http2Client) -> String {
    let list = admin.get("/apis/example.com/v2").await.json();
    list["resources"][0]["storageVersionHash"].to_string()
}

async fn versions_of(admin: &Http2Client, names: &[&str]) -> Vec<String> {
    let mut versions = Vec::new();
    for name in names {
        let object = admin.get(&format!("{WIDGETS}/{name}")).await;
        let object = object.expect_status(200).json();
        versions.push(object["metadata"]["resourceVersion"].to_string());
    }
    versions
}

/// Creates a migration; returns it when it has ended and is no longer running.
async fn migrate(admin: &Http2Client, name: &str, group: &str, plural: &str) -> Value {
    let migration = json!({"metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": plural}}});
    admin.post(MIGRATIONS, &migration).await.expect_status(201);
    let path = format!("{MIGRATIONS}/{name}");
    wait_for_value("the migration ends", async || {
        let migration = admin.get(&path).await.json();
        let ended = ["Succeeded", "Failed"]
            .iter()
            .any(|kind| has_condition(&migration, kind));
        let running = &find_condition(&migration, "Running")["status"];
        (ended && *running == "False").then_some(migration)
    })
    .await
}

#[tokio::test]
async fn objects_are_rewritten_when_the_storage_version_has_changed() {
    let plane = start().await;
    let admin = Http2Client::connect(&plane.admin()).await;
    create_definition(&admin).await;
    for name in ["a", "b"] {
        admin.post(WIDGETS, &widget(name)).await.expect_status(201);
    }
    let before = storage_hash(&admin).await;
    assert_eq!(
        set_versions(&admin, &[("v1", false), ("v2", true)]).await,
        200
    );
    wait_for("the server stores the other version", async || {
        storage_hash(&admin).await != before
    })
    .await;
    admin.post(WIDGETS, &widget("c")).await.expect_status(201);
    let stored = |definition: &Value| definition["status"]["storedVersions"].clone();
    let changed = admin.get(DEFINITION).await.json();
    assert_eq!(stored(&changed), json!(["v1", "v2"]));
    assert_eq!(
        set_versions(&admin, &[("v2", true)]).await,
        422,
        "v1 is stored"
    );

    let names = ["a", "b", "c"];
    let before = versions_of(&admin, &names).await;
    let migration = migrate(&admin, "first", "example.com", "widgets").await;
    assert!(has_condition(&migration, "Succeeded"), "{migration}");
    let after = versions_of(&admin, &names).await;
    let is_rewritten: Vec<bool> = after.iter().zip(&before).map(|(a, b)| a != b).collect();
    assert_eq!(is_rewritten, [true, true, false], "{before:?} {after:?}");
    let found = admin.get(DEFINITION).await.json();
    assert_eq!(stored(&found), json!(["v2"]));
    let condition = find_condition(&found, "StorageMigrating");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("MigrationSucceeded"))
    );

    let migration = migrate(&admin, "second", "example.com", "widgets").await;
    assert!(has_condition(&migration, "Succeeded"), "{migration}");
    assert_eq!(
        versions_of(&admin, &names).await,
        after,
        "nothing is left to rewrite"
    );
    assert_eq!(stored(&admin.get(DEFINITION).await.json()), json!(["v2"]));
    assert_eq!(
        set_versions(&admin, &[("v2", true)]).await,
        200,
        "v1 is not stored"
    );
    let object = admin
        .get(&format!("{WIDGETS}/a"))
        .await
        .expect_status(200)
        .json();
    assert_eq!(object["spec"]["size"], 1);
}

#[tokio::test]
async fn built_in_kind_is_migrated_and_one_without_the_verbs_fails() {
    let plane = start().await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let migration = migrate(&admin, "maps", "", "configmaps").await;
    assert!(has_condition(&migration, "Succeeded"), "{migration}");
    let migration = migrate(&admin, "statuses", "", "componentstatuses").await;
    let failed = find_condition(&migration, "Failed");
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains("does not support"), "{migration}");
}

#[tokio::test]
async fn webhook_that_denies_as_if_the_object_were_absent_fails_the_migration() {
    let plane = start().await;
    let admin = Http2Client::connect(&plane.admin()).await;
    let server = WebhookServer::start(&[], |_, review| {
        let status = json!({"message": "no", "code": 404, "reason": "NotFound"});
        WebhookReply::json(
            &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
            "response": {"uid": review["request"]["uid"], "allowed": false, "status": status}}),
        )
    })
    .await;
    let client_config =
        json!({"url": server.url("/"), "caBundle": STANDARD.encode(server.authority())});
    create_with_webhook(&admin, &client_config, 404).await;
    let migration = migrate(&admin, "m", "example.com", "widgets").await;
    assert!(has_condition(&migration, "Failed"), "{migration}");
    let message = find_condition(&migration, "Failed")["message"].clone();
    assert!(
        message.to_string().contains("denied the request: no"),
        "{message}"
    );
    let found = admin.get(DEFINITION).await.json();
    let condition = find_condition(&found, "StorageMigrating");
    assert_eq!(condition["reason"], "MigrationFailed");
}

#[tokio::test]
async fn deletion_of_a_running_migration_shows_in_the_definition() {
    let plane = start().await;
    let admin = Http2Client::connect(&plane.admin()).await;
    // A webhook that can't be reached: the migration is tried until it is deleted.
    create_with_webhook(&admin, &json!({"url": "https://127.0.0.1:1/"}), 500).await;
    let migration = json!({"metadata": {"name": "m"},
        "spec": {"resource": {"group": "example.com", "resource": "widgets"}}});
    admin.post(MIGRATIONS, &migration).await.expect_status(201);
    let condition = async || {
        let found = admin.get(DEFINITION).await.json();
        find_condition(&found, "StorageMigrating")["reason"].clone()
    };
    wait_for("the migration runs", async || {
        condition().await == "MigrationRunning"
    })
    .await;
    let path = format!("{MIGRATIONS}/m");
    admin.delete(&path).await.expect_status(200);
    wait_for("the migration is aborted", async || {
        condition().await == "MigrationAborted"
    })
    .await;
}
