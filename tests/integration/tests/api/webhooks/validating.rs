//! Verdicts about objects and connections.

use super::{allow, deny, hook, register_validating, requests, respond, start};
use integration_tests::{ReplyExt, config_map, pod};
use serde_json::{Value, json};
use testkit_control_plane::WebhookServer;

fn deny_bad(path: &str, review: &Value) -> testkit_control_plane::WebhookReply {
    match path {
        "/data" if review["request"]["object"]["data"]["bad"] == "yes" => {
            deny(review, "the config map is bad")
        }
        _ => allow(review),
    }
}

#[tokio::test]
async fn denial_reaches_the_client_for_create_update_and_patch() {
    let test = start().await;
    let server = WebhookServer::start(&[], deny_bad).await;
    let hooks = vec![hook(&test, &server, "data", &["configmaps"])];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    let mut bad = config_map("m");
    bad["data"]["bad"] = json!("yes");
    let message =
        "admission webhook \"data.example.com\" denied the request: the config map is bad";
    let reply = test.admin.post(&path, &bad).await;
    reply.expect_failure(403, "Forbidden", message);
    test.create(&path, &config_map("m")).await;
    let object = format!("{path}/m");
    let reply = test.admin.put(&object, &bad).await;
    reply.expect_failure(403, "Forbidden", message);
    let change = json!({"data": {"bad": "yes"}});
    let reply = test.admin.merge_patch(&object, &change).await;
    reply.expect_failure(403, "Forbidden", message);
    let calls = requests(&server, "data").len();
    assert_eq!(calls, 4, "one call for each request");
    test.admin
        .merge_patch(&object, &json!({"data": {"good": "yes"}}))
        .await
        .expect_status(200);
}

#[tokio::test]
async fn review_describes_the_request() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let hooks = vec![hook(&test, &server, "data", &["configmaps"])];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    test.create(&format!("{path}?fieldManager=me"), &config_map("m"))
        .await;
    let change = json!({"data": {"a": "2"}});
    test.admin
        .merge_patch(&format!("{path}/m?dryRun=All"), &change)
        .await
        .expect_status(200);
    let all = requests(&server, "data");
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for request in &all {
        for field in ["kind", "requestKind"] {
            assert_eq!(request[field], kind);
        }
        for field in ["resource", "requestResource"] {
            assert_eq!(request[field], resource);
        }
        assert_eq!(request["name"], "m");
        assert_eq!(request["namespace"], test.namespace.as_str());
        assert!(request["userInfo"]["username"].is_string(), "{request}");
        assert_eq!(request["object"]["kind"], "ConfigMap");
        assert_eq!(request["object"]["apiVersion"], "v1");
    }
    let [create, update] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(create["operation"], "CREATE");
    assert_eq!(create["dryRun"], false);
    assert_eq!(create["oldObject"], Value::Null);
    assert_eq!(create["options"]["kind"], "CreateOptions");
    assert_eq!(create["options"]["fieldManager"], "me");
    assert_eq!(update["operation"], "UPDATE");
    assert_eq!(update["dryRun"], true);
    assert_eq!(update["object"]["data"]["a"], "2");
    assert_eq!(update["oldObject"]["data"]["a"], "1");
    assert_eq!(update["oldObject"]["kind"], "ConfigMap");
    assert_eq!(update["options"]["kind"], "UpdateOptions");
    let stored = test.read(&format!("{path}/m")).await;
    assert_eq!(stored["data"]["a"], "1", "a dry run stores nothing");
}

#[tokio::test]
async fn deletion_can_be_denied_with_the_old_object() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| {
        let request = &review["request"];
        let kept = request["oldObject"]["metadata"]["labels"]["keep"] == "yes";
        match (request["operation"].as_str(), kept) {
            (Some("DELETE"), true) => deny(review, "kept"),
            _ => allow(review),
        }
    })
    .await;
    let hooks = vec![hook(&test, &server, "data", &["configmaps"])];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    let mut kept = config_map("kept");
    kept["metadata"]["labels"] = json!({"keep": "yes"});
    test.create(&path, &kept).await;
    test.create(&path, &config_map("free")).await;
    let reply = test.admin.delete(&format!("{path}/kept")).await;
    let message = "admission webhook \"data.example.com\" denied the request: kept";
    reply.expect_failure(403, "Forbidden", message);
    let reply = test.admin.delete(&path).await;
    reply.expect_reason(403, "Forbidden");
    test.read(&format!("{path}/kept")).await;
    let deletions: Vec<Value> = requests(&server, "data")
        .into_iter()
        .filter(|request| request["operation"] == "DELETE")
        .collect();
    assert!(
        deletions.len() >= 2,
        "each object of a collection is asked for"
    );
    for request in deletions {
        assert_eq!(request["object"], Value::Null);
        assert_eq!(request["oldObject"]["kind"], "ConfigMap");
        assert_eq!(request["options"]["kind"], "DeleteOptions", "{request}");
    }
}

#[tokio::test]
async fn connection_to_a_pod_can_be_denied() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/attach" => deny(review, "attaching is not allowed"),
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "attach", &["pods/attach"])];
    register_validating(&test, &server, hooks).await;
    test.create(&test.core("pods"), &pod("p")).await;
    let path = format!("{}/p/attach?stdin=true&container=c", test.core("pods"));
    let reply = test.admin.post(&path, &json!({})).await;
    let message =
        "admission webhook \"attach.example.com\" denied the request: attaching is not allowed";
    reply.expect_failure(403, "Forbidden", message);
    let request = requests(&server, "attach").remove(0);
    assert_eq!(request["operation"], "CONNECT");
    assert_eq!(request["subResource"], "attach");
    assert_eq!(request["kind"]["kind"], "PodAttachOptions");
    assert_eq!(request["object"]["stdin"], true);
    assert_eq!(request["object"]["container"], "c");
    assert_eq!(request["name"], "p");
}

#[tokio::test]
async fn all_webhooks_are_called_and_their_warnings_are_sent() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| {
        let warnings = json!([format!("from {path}")]);
        respond(review, json!({"allowed": true, "warnings": warnings}))
    })
    .await;
    let hooks = vec![
        hook(&test, &server, "one", &["configmaps"]),
        hook(&test, &server, "two", &["configmaps"]),
    ];
    register_validating(&test, &server, hooks).await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("m"))
        .await
        .expect_status(201);
    let mut warnings = reply.warnings();
    warnings.sort();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("from /one") && warnings[1].contains("from /two"));
}

#[tokio::test]
async fn denial_is_sent_with_its_code_and_warnings() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/deny" => respond(
            review,
            json!({"allowed": false, "warnings": ["careful"], "status": {"message": "not today", "code": 418}}),
        ),
        _ => allow(review),
    })
    .await;
    let hooks = vec![hook(&test, &server, "deny", &["configmaps"])];
    register_validating(&test, &server, hooks).await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("m"))
        .await
        .expect_status(418);
    assert!(
        reply
            .warnings()
            .iter()
            .any(|warning| warning.contains("careful"))
    );
    let message = "admission webhook \"deny.example.com\" denied the request: not today";
    reply.expect_failure(418, "", message);
}

#[tokio::test]
async fn changed_and_deleted_configurations_take_effect() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/marker" => allow(review),
        _ => deny(review, "no"),
    })
    .await;
    let hooks = vec![hook(&test, &server, "data", &["configmaps"])];
    let configuration = register_validating(&test, &server, hooks).await;
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    let status = async || test.admin.post(&path, &config_map("m")).await.status;
    assert_eq!(status().await, 403);
    let rules =
        json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["UPDATE"]}]);
    test.admin
        .patch(integration_tests::PatchType::Json, &configuration, &rules)
        .await
        .expect_status(200);
    integration_tests::wait_for("the change", async || status().await == 201).await;
    let rules =
        json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]);
    test.admin
        .patch(integration_tests::PatchType::Json, &configuration, &rules)
        .await
        .expect_status(200);
    integration_tests::wait_for("the change", async || status().await == 403).await;
    test.admin.delete(&configuration).await.expect_status(200);
    integration_tests::wait_for("the deletion", async || status().await == 201).await;
}
