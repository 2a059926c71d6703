//! Patches, reinvocation, and their bounds.

use super::{allow, hook, patch, register_mutating, requests, start};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{ReplyExt, config_map, pod};
use serde_json::{Value, json};
use testkit_control_plane::{WebhookReply, WebhookServer};

fn add_stage(review: &Value, needs: &str, adds: &str) -> WebhookReply {
    if review["request"]["object"]["data"][needs].is_string() {
        let path = format!("/data/{adds}");
        patch(
            review,
            &json!([{"op": "add", "path": path, "value": "yes"}]),
        )
    } else {
        allow(review)
    }
}

#[tokio::test]
async fn webhooks_change_the_object_one_after_another() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/first" => add_stage(review, "start", "stage-1"),
        "/second" => add_stage(review, "stage-1", "stage-2"),
        _ => allow(review),
    })
    .await;
    let hooks = vec![
        hook(&test, &server, "first", &["configmaps"]),
        hook(&test, &server, "second", &["configmaps"]),
    ];
    register_mutating(&test, &server, hooks).await;
    let mut object = config_map("m");
    object["data"] = json!({"start": "yes"});
    let created = test.create(&test.core("configmaps"), &object).await;
    let expect = json!({"start": "yes", "stage-1": "yes", "stage-2": "yes"});
    assert_eq!(created["data"], expect);
    let stored = test.read(&format!("{}/m", test.core("configmaps"))).await;
    assert_eq!(stored["data"], expect);
    assert_eq!(requests(&server, "first").len(), 1, "reinvocation is Never");
}

#[tokio::test]
async fn added_fields_get_defaults_and_are_validated() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/init" => {
            let name = review["request"]["object"]["metadata"]["labels"]["init"].clone();
            let container = json!({"name": name, "image": "example.com/i:1"});
            let path = "/spec/initContainers";
            patch(
                review,
                &json!([{"op": "add", "path": path, "value": [container]}]),
            )
        }
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "init", &["pods"])];
    register_mutating(&test, &server, hooks).await;
    let mut object = pod("p");
    object["metadata"]["labels"] = json!({"init": "i"});
    let created = test.create(&test.core("pods"), &object).await;
    let container = &created["spec"]["initContainers"][0];
    assert_eq!(container["terminationMessagePolicy"], "File", "{container}");
    // The plugins have run twice, and the token is mounted once, also into the added container.
    let count = |list: &Value| list.as_array().map_or(0, Vec::len);
    assert_eq!(count(&created["spec"]["volumes"]), 1);
    for container in ["containers", "initContainers"] {
        let mounts = &created["spec"][container][0]["volumeMounts"];
        assert_eq!(count(mounts), 1, "{container}");
    }
    let mut invalid = pod("q");
    invalid["metadata"]["labels"] = json!({"init": "Not_A_Name"});
    let reply = test.admin.post(&test.core("pods"), &invalid).await;
    reply.expect_reason(422, "Invalid");
}

#[tokio::test]
async fn earlier_webhook_is_called_again_after_a_later_change() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| {
        let data = &review["request"]["object"]["data"];
        match path {
            "/count" => {
                let count = data.as_object().map_or(0, serde_json::Map::len);
                let operation =
                    json!([{"op": "add", "path": "/data/count", "value": count.to_string()}]);
                patch(review, &operation)
            }
            "/later" if !data["later"].is_string() => add_stage(review, "a", "later"),
            _ => allow(review),
        }
    })
    .await;
    let mut count = hook(&test, &server, "count", &["configmaps"]);
    count["reinvocationPolicy"] = json!("IfNeeded");
    let later = hook(&test, &server, "later", &["configmaps"]);
    register_mutating(&test, &server, vec![count, later]).await;
    let created = test
        .create(&test.core("configmaps"), &config_map("m"))
        .await;
    assert_eq!(
        created["data"],
        json!({"a": "1", "count": "3", "later": "yes"}),
        "a, count and later in the second call"
    );
    assert_eq!(requests(&server, "count").len(), 2);
    assert_eq!(requests(&server, "later").len(), 1);
}

#[tokio::test]
async fn identity_of_the_object_can_not_be_changed() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| {
        let field = review["request"]["object"]["metadata"]["labels"]["change"].clone();
        match (path, field.as_str()) {
            ("/steal", Some(field)) => {
                let path = format!("/metadata/{field}");
                patch(
                    review,
                    &json!([{"op": "add", "path": path, "value": "stolen"}]),
                )
            }
            _ => allow(review),
        }
    })
    .await;
    let hooks = vec![hook(&test, &server, "steal", &["configmaps"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    for field in ["name", "namespace", "uid"] {
        let mut object = config_map("m");
        object["metadata"]["labels"] = json!({"change": field});
        let reply = test.admin.post(&path, &object).await;
        let message = format!(
            "Internal error occurred: admission webhook \"steal.example.com\" attempted to change metadata.{field}, which is not allowed"
        );
        reply.expect_failure(500, "InternalError", &message);
    }
    assert!(test.admin.get(&format!("{path}/stolen")).await.status == 404);
}

#[tokio::test]
async fn webhook_sees_no_generated_name_and_may_set_one() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| {
        let name = review["request"]["object"]["data"]["name"].clone();
        match (path, name.as_str()) {
            ("/namer", Some(name)) => {
                let add = json!([{"op": "add", "path": "/metadata/name", "value": name}]);
                patch(review, &add)
            }
            _ => allow(review),
        }
    })
    .await;
    let hooks = vec![hook(&test, &server, "namer", &["configmaps"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    let mut object = json!({"metadata": {"generateName": "gen-"}, "data": {"k": "v"}});
    let created = test.create(&path, &object).await;
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let seen = requests(&server, "namer");
    let review = &seen.last().unwrap()["request"];
    assert_eq!(review.get("name"), None);
    assert_eq!(review["object"]["metadata"].get("name"), None);
    object["data"]["name"] = json!("chosen");
    let created = test.create(&path, &object).await;
    assert_eq!(created["metadata"]["name"], "chosen");
    let message = "configmaps \"chosen\" already exists, the server was not able to generate a \
                   unique name for the object";
    let again = test.admin.post(&path, &object).await;
    again.expect_failure(409, "AlreadyExists", message);
    object["data"]["name"] = json!("No_Name");
    let invalid = test.admin.post(&path, &object).await;
    invalid.expect_causes(&[("metadata.name", "FieldValueInvalid")]);
}

#[tokio::test]
async fn metadata_of_the_server_is_kept() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/times" => {
            let time = "2001-01-01T00:00:00Z";
            let add = |field: &str, value: Value| json!({"op": "add", "path": format!("/metadata/{field}"), "value": value});
            patch(
                review,
                &json!([
                    add("creationTimestamp", json!(time)),
                    add("deletionTimestamp", json!(time)),
                    add("generation", json!(77)),
                    add("annotations", json!({"seen": "yes"})),
                ]),
            )
        }
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "times", &["configmaps"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("m")).await;
    let change = json!({"data": {"a": "2"}});
    let reply = test.admin.merge_patch(&format!("{path}/m"), &change).await;
    let metadata = reply.expect_status(200).json()["metadata"].take();
    assert_eq!(metadata["annotations"]["seen"], "yes");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(metadata["deletionTimestamp"], Value::Null);
    assert_ne!(metadata["generation"], 77);
}

#[tokio::test]
async fn change_by_a_webhook_counts_as_a_new_generation() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| {
        let update = review["request"]["operation"] == "UPDATE";
        match path {
            "/scale" if update => patch(
                review,
                &json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]),
            ),
            _ => allow(review),
        }
    })
    .await;
    let hooks = vec![hook(&test, &server, "scale", &["deployments"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &integration_tests::deployment("d", 1))
        .await;
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let reply = test.admin.merge_patch(&format!("{path}/d"), &change).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(object["metadata"]["generation"], 2);
}

#[tokio::test]
async fn scale_is_changed_without_touching_the_rest() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/limit" => patch(
            review,
            &json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]),
        ),
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "limit", &["deployments/scale"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.group("apps/v1", "deployments");
    let object = integration_tests::deployment("d", 1);
    let created = test.create(&path, &object).await;
    let scale = json!({"spec": {"replicas": 50}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/d/scale"), &scale)
        .await;
    assert_eq!(reply.expect_status(200).json()["spec"]["replicas"], 3);
    let stored = test.read(&format!("{path}/d")).await;
    assert_eq!(stored["spec"]["replicas"], 3);
    assert_eq!(stored["spec"]["template"], created["spec"]["template"]);
}

#[tokio::test]
async fn patch_of_a_deletion_or_of_a_wrong_type_is_an_error() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/change" if review["request"]["name"] == "text" => patch(
            review,
            &json!([{"op": "add", "path": "/data", "value": "text"}]),
        ),
        "/change" if review["request"]["operation"] == "DELETE" => patch(
            review,
            &json!([{"op": "add", "path": "/data", "value": {}}]),
        ),
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "change", &["configmaps"])];
    register_mutating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    let reply = test.admin.post(&path, &config_map("text")).await;
    reply.expect_reason(500, "InternalError");
    test.create(&path, &config_map("m")).await;
    let reply = test.admin.delete(&format!("{path}/m")).await;
    let message = "Internal error occurred: admission webhook \"change.example.com\" attempted to modify the object, which is not supported for this operation";
    reply.expect_failure(500, "InternalError", message);
}

#[tokio::test]
async fn options_of_a_connection_are_changed() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/exec" => patch(
            review,
            &json!([{"op": "replace", "path": "/container", "value": "other"}]),
        ),
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "exec", &["pods/exec"])];
    register_mutating(&test, &server, hooks).await;
    test.create(&test.core("pods"), &pod("p")).await;
    let path = format!("{}/p/exec?command=sh&container=c", test.core("pods"));
    let reply = test.admin.post(&path, &json!({})).await;
    let message = "container other is not valid for pod p";
    reply.expect_failure(400, "BadRequest", message);
}

#[tokio::test]
async fn review_of_v1beta1_needs_neither_uid_nor_kind() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/old" => {
            assert_eq!(review["apiVersion"], "admission.k8s.io/v1beta1");
            let operations = json!([{"op": "add", "path": "/data/old", "value": "yes"}]);
            let patch = STANDARD.encode(operations.to_string());
            WebhookReply::json(&json!({"response": {"allowed": true, "patch": patch}}))
        }
        _ => allow(review),
    })
    .await;
    let mut old = hook(&test, &server, "old", &["configmaps"]);
    old["admissionReviewVersions"] = json!(["v1beta1", "v1"]);
    register_mutating(&test, &server, vec![old]).await;
    let created = test
        .create(&test.core("configmaps"), &config_map("m"))
        .await;
    assert_eq!(created["data"]["old"], "yes");
}
