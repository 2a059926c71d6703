//! `matchPolicy: Equivalent`: webhooks and policies that match another version than the request's.

use super::conversion::{convert, foo, serve_both};
use super::{definition, establish, group, start, wait_for_status};
use crate::{mutating_policies, policies, webhooks};
use integration_tests::{ReplyExt, Test};
use serde_json::{Value, json};
use testkit_control_plane::WebhookServer;
use webhooks::{allow, deny, hook, patch, register_mutating, register_validating, requests};

/// Returns a webhook for v2 of `foos` that matches requests of all versions.
fn hook_of_v2(test: &Test, server: &WebhookServer, name: &str) -> Value {
    let mut hook = hook(test, server, name, &["foos", "foos/status"]);
    hook["rules"][0]["apiVersions"] = json!(["v2"]);
    hook["matchPolicy"] = json!("Equivalent");
    hook
}

#[tokio::test]
async fn webhooks_receive_and_change_the_object_in_their_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/convert" => convert(review),
        // Of a deletion, there is no object that could change.
        "/grow" if review["request"]["operation"] == "DELETE" => allow(review),
        "/grow" => {
            let width = review["request"]["object"]["spec"]["width"].as_i64();
            let width = json!(width.unwrap_or(100) + 1);
            patch(
                review,
                &json!([{"op": "replace", "path": "/spec/width", "value": width},
                    {"op": "add", "path": "/metadata/labels", "value": {"grown": "yes"}}]),
            )
        }
        "/guard" if review["request"]["object"]["spec"]["width"] == 9 => deny(review, "too wide"),
        _ => allow(review),
    })
    .await;
    let [v1, v2] = serve_both(&test, &server).await;
    let grow = ["grow", "grow2"].map(|name| hook_of_v2(&test, &server, name));
    register_mutating(&test, &server, grow.to_vec()).await;
    let guard = vec![hook_of_v2(&test, &server, "guard")];
    register_validating(&test, &server, guard).await;

    let created = test
        .create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    assert_eq!(created["spec"], json!({"size": 4}));
    assert_eq!(created["apiVersion"], format!("{}/v1", group(&test)));
    assert_eq!(created["metadata"]["labels"], json!({"grown": "yes"}));
    let first = requests(&server, "grow").remove(0);
    assert_eq!(first["kind"]["version"], "v2");
    assert_eq!(first["requestKind"]["version"], "v1");
    assert_eq!(
        first["object"]["apiVersion"],
        format!("{}/v2", group(&test))
    );
    assert_eq!(first["object"]["spec"], json!({"width": 3}));
    for name in ["grow2", "guard"] {
        let request = requests(&server, name).remove(0);
        assert_eq!(request["object"]["spec"], json!({"width": 4}), "{name}");
    }

    let change = json!({"spec": {"size": 5}});
    let reply = test.admin.merge_patch(&format!("{v1}/a"), &change).await;
    assert_eq!(reply.expect_status(200).json()["spec"], json!({"size": 6}));
    let update = requests(&server, "guard").remove(1);
    assert_eq!(update["oldObject"]["spec"], json!({"width": 4}));
    assert_eq!(update["object"]["spec"], json!({"width": 6}));
    assert_eq!(test.read(&format!("{v2}/a")).await["spec"]["width"], 6);

    for path in [v1.clone(), format!("{v1}?dryRun=All")] {
        let wide = foo(&test, "v1", "b", &json!({"size": 8}));
        let reply = test.admin.post(&path, &wide).await;
        let message = "admission webhook \"guard.example.com\" denied the request: too wide";
        reply.expect_failure(403, "Forbidden", message);
    }
    let reply = test.admin.delete(&format!("{v1}/a")).await;
    reply.expect_status(200);
    let deletion = requests(&server, "guard").pop().unwrap();
    assert_eq!(deletion["oldObject"]["spec"], json!({"width": 6}));
    assert_eq!(deletion["object"], Value::Null);
}

#[tokio::test]
async fn request_fails_if_the_object_can_not_be_converted_for_a_webhook() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/convert" => convert(review),
        _ => allow(review),
    })
    .await;
    let [v1, _] = serve_both(&test, &server).await;
    let mut lenient = hook_of_v2(&test, &server, "guard");
    // The policy is about calls of the webhook, not about the object that it would receive.
    lenient["failurePolicy"] = json!("Ignore");
    register_validating(&test, &server, vec![lenient]).await;
    let mut broken = foo(&test, "v1", "b", &json!({"size": 3}));
    broken["metadata"]["labels"] = json!({"broken": "true"});
    let reply = test.admin.post(&v1, &broken).await;
    let status = reply.expect_reason(500, "InternalError");
    let message = status["message"].to_string();
    assert!(
        message.contains("Kind=Foo failed: it is broken"),
        "{message}"
    );
    assert!(requests(&server, "guard").is_empty());
    test.create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
}

#[tokio::test]
async fn fields_of_another_version_survive_a_webhook_without_conversion() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/mark" => patch(
            review,
            &json!([{"op": "add", "path": "/spec/mark", "value": "seen"}]),
        ),
        _ => allow(review),
    })
    .await;
    let group = group(&test);
    let mut both = definition(&group, "foos", "Foo");
    let schema = |field: &str| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "properties": {field: {"type": "integer"}, "mark": {"type": "string"}}}}}})
    };
    both["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema("size")},
        {"name": "v2", "served": true, "storage": false, "schema": schema("width")}]);
    establish(&test, &both).await;
    let v1 = test.group(&format!("{group}/v1"), "foos");
    wait_for_status(&test, &v1, 200).await;
    let hooks = vec![hook_of_v2(&test, &server, "mark")];
    register_mutating(&test, &server, hooks).await;
    let created = test
        .create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    assert_eq!(created["spec"], json!({"size": 3, "mark": "seen"}));
    assert_eq!(created["apiVersion"], format!("{group}/v1"));
    let request = requests(&server, "mark").remove(0);
    assert_eq!(request["object"]["apiVersion"], format!("{group}/v2"));
}

/// Returns a policy for v2 of `foos`, and for the config map that shows that it is effective.
fn policy_of_v2(test: &Test, mut fields: Value) -> Value {
    let rule = |group: &str, version: &str, resource: &str| json!({"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]});
    fields["matchConstraints"] = json!({"matchPolicy": "Equivalent",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": test.namespace}},
        "resourceRules": [rule("", "v1", "configmaps"), rule(&group(test), "v2", "foos")]});
    policies::policy(test, &[], fields)
}

#[tokio::test]
async fn policy_is_evaluated_in_its_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, _] = serve_both(&test, &server).await;
    let validations = json!([{"expression": "request.resource.resource != 'foos' || object.spec.width < 5",
        "messageExpression": "request.kind.version + ' for ' + request.requestKind.version"}]);
    let policy = policy_of_v2(&test, json!({"validations": validations}));
    policies::enforce(&test, policy, json!({})).await;
    let resource = format!("foos.{}", group(&test));
    let wide = foo(&test, "v1", "a", &json!({"size": 5}));
    let reply = test.admin.post(&v1, &wide).await;
    let message = policies::denied(&test, &resource, "a", "v2 for v1");
    reply.expect_failure(422, "Invalid", &message);
    test.create(&v1, &foo(&test, "v1", "a", &json!({"size": 4})))
        .await;
    let change = json!({"spec": {"size": 6}});
    let reply = test.admin.merge_patch(&format!("{v1}/a"), &change).await;
    reply.expect_failure(422, "Invalid", &message);

    let mut broken = foo(&test, "v1", "b", &json!({"size": 3}));
    broken["metadata"]["labels"] = json!({"broken": "true"});
    let reply = test.admin.post(&v1, &broken).await;
    let status = reply.expect_reason(422, "Invalid");
    let message = status["message"].to_string();
    assert!(
        message.contains("failed to convert object version"),
        "{message}"
    );
}

#[tokio::test]
async fn mutation_of_a_policy_is_converted_back() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    let mutations = json!([
        mutating_policies::apply("Object{spec: Object.spec{width: object.spec.width + 1}}"),
        mutating_policies::patch(
            "[JSONPatch{op: 'replace', path: '/spec/width', value: object.spec.width + 2}]"
        ),
    ]);
    let group = group(&test);
    mutating_policies::enforce_versions(&test, &group, "v2", "foos", mutations).await;
    let created = test
        .create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    assert_eq!(created["spec"], json!({"size": 6}));
    let created = test
        .create(&v2, &foo(&test, "v2", "b", &json!({"width": 3})))
        .await;
    assert_eq!(created["spec"], json!({"width": 6}));
}

#[tokio::test]
async fn parameters_have_the_version_of_their_kind() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, _] = serve_both(&test, &server).await;
    let mut limit = foo(&test, "v1", "limit", &json!({"size": 3}));
    limit["metadata"]["labels"] = json!({"tier": "limits"});
    test.create(&v1, &limit).await;
    let kind = json!({"apiVersion": format!("{}/v2", group(&test)), "kind": "Foo"});
    let fields = json!({"paramKind": kind, "validations": [
        {"expression": "object.metadata.name.size() <= params.spec.width || object.metadata.name == 'marker'",
         "messageExpression": "params.apiVersion.split('/')[1]"}]});
    let policy = policies::policy(&test, &["configmaps"], fields);
    let reference = json!({"selector": {"matchLabels": {"tier": "limits"}},
        "parameterNotFoundAction": "Deny"});
    policies::enforce(&test, policy, json!({"paramRef": reference})).await;
    let path = test.core("configmaps");
    let map = integration_tests::config_map;
    let reply = test.admin.post(&path, &map("long")).await;
    let message = policies::denied(&test, "configmaps", "long", "v2");
    reply.expect_failure(422, "Invalid", &message);
    test.create(&path, &map("abc")).await;
    // A parameter that can't be converted is not missing.
    let change = json!({"metadata": {"labels": {"broken": "true"}}});
    let reply = test
        .admin
        .merge_patch(&format!("{v1}/limit"), &change)
        .await;
    reply.expect_status(200);
    integration_tests::wait_for("the parameter is broken", async || {
        let reply = test
            .admin
            .post(&format!("{path}?dryRun=All"), &map("x"))
            .await;
        reply.status == 422 && reply.json()["message"].to_string().contains("it is broken")
    })
    .await;
}
