//! Webhooks that can't be called, or whose responses can't be used.

use super::{
    allow, hook, register, register_validating, requests, respond, service_hook, service_name,
    start,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{ReplyExt, Test, config_map, wait_for};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{WebhookReply, WebhookServer};

fn reply_with(status: u16, headers: Vec<(&'static str, String)>, body: String) -> WebhookReply {
    WebhookReply {
        status,
        headers,
        body: body.into(),
        delay: Duration::ZERO,
    }
}

fn misbehave(path: &str, review: &Value) -> WebhookReply {
    match path {
        "/slow" => allow(review).after(Duration::from_secs(60)),
        "/uid" => WebhookReply::json(&json!({"kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1", "response": {"uid": "other", "allowed": true}})),
        "/kind" => WebhookReply::json(&json!({"kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1beta1",
            "response": {"uid": review["request"]["uid"], "allowed": true}})),
        "/huge" => reply_with(200, Vec::new(), " ".repeat(9 * 1024 * 1024)),
        "/redirect" => {
            let location = vec![("location", "/target".to_owned())];
            reply_with(307, location, String::new())
        }
        "/error" => reply_with(500, Vec::new(), "boom".into()),
        "/garbage" => reply_with(200, Vec::new(), "{".into()),
        "/patch" => respond(
            review,
            json!({"allowed": true, "patch": "W10=", "patchType": "JSONPatch"}),
        ),
        _ => allow(review),
    }
}

/// Returns a webhook for objects with the label `case: NAME`.
fn case(test: &Test, server: &WebhookServer, name: &str) -> Value {
    let mut hook = hook(test, server, name, &["configmaps"]);
    hook["objectSelector"] = json!({"matchLabels": {"case": name}});
    hook
}

async fn post_case(test: &Test, case: &str) -> testkit_control_plane::Reply {
    let mut object = config_map("m");
    object["metadata"]["labels"] = json!({"case": case});
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    test.admin.post(&path, &object).await
}

#[tokio::test]
async fn failed_call_rejects_the_request_with_the_reason() {
    let test = start().await;
    let server = WebhookServer::start(&[], misbehave).await;
    let cases = [
        (
            "uid",
            "received invalid webhook response: expected response.uid=",
        ),
        (
            "kind",
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1",
        ),
        ("huge", "the response is larger than"),
        (
            "redirect",
            "failed to call webhook: the server responded with a redirect",
        ),
        (
            "error",
            "failed to call webhook: an error on the server (\"boom\")",
        ),
        (
            "garbage",
            "failed to call webhook: couldn't get version/kind",
        ),
        (
            "patch",
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
    ];
    let hooks = cases.iter().map(|(name, _)| case(&test, &server, name));
    register_validating(&test, &server, hooks.collect()).await;
    for (name, part) in cases {
        let status = post_case(&test, name)
            .await
            .expect_reason(500, "InternalError");
        let message = status["message"].as_str().unwrap_or_default();
        let start =
            format!("Internal error occurred: failed calling webhook \"{name}.example.com\": ");
        assert!(
            message.starts_with(&start) && message.contains(part),
            "{message}"
        );
    }
    let paths = server.received().into_iter().map(|received| received.path);
    assert!(
        !paths.into_iter().any(|path| path.starts_with("/target")),
        "redirect"
    );
}

#[tokio::test]
async fn timeout_ends_the_call_and_the_policy_decides() {
    let test = start().await;
    let server = WebhookServer::start(&[], misbehave).await;
    let slow = |case: &str, policy: &str| {
        let mut hook = hook(&test, &server, "slow", &["configmaps"]);
        hook["name"] = json!(format!("{case}.example.com"));
        hook["objectSelector"] = json!({"matchLabels": {"case": case}});
        hook["timeoutSeconds"] = json!(1);
        hook["failurePolicy"] = json!(policy);
        hook
    };
    let hooks = vec![slow("closed", "Fail"), slow("open", "Ignore")];
    register_validating(&test, &server, hooks).await;
    let begun = Instant::now();
    let url = server.url("/slow?timeout=1s");
    let message = format!(
        "Internal error occurred: failed calling webhook \"closed.example.com\": failed to call webhook: Post \"{url}\": context deadline exceeded"
    );
    let reply = post_case(&test, "closed").await;
    reply.expect_failure(500, "InternalError", &message);
    post_case(&test, "open").await.expect_status(201);
    // Two calls of 10 s each, if the timeout were the default one.
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    let page = test.admin.get("/metrics").await.text();
    for line in [
        "apiserver_admission_webhook_fail_open_count{name=\"open.example.com\",type=\"validating\"} 1",
        "apiserver_admission_webhook_rejection_count{name=\"closed.example.com\",type=\"validating\",operation=\"CREATE\",error_type=\"calling_webhook_error\",rejection_code=\"503\"} 1",
    ] {
        assert!(page.contains(line), "{line}");
    }
}

#[tokio::test]
async fn server_with_another_certificate_is_not_called() {
    let test = start().await;
    let server = WebhookServer::start(&[], misbehave).await;
    let other = WebhookServer::start(&[], misbehave).await;
    let mut foreign = case(&test, &server, "foreign");
    foreign["clientConfig"]["caBundle"] = json!(STANDARD.encode(other.authority()));
    let mut absent = case(&test, &server, "absent");
    absent["clientConfig"]["caBundle"].take();
    let mut name = case(&test, &server, "name");
    name["clientConfig"]["url"] = json!(format!("https://127.0.0.2:{}/name", server.port()));
    register_validating(&test, &server, vec![foreign, absent, name]).await;
    for (case, part) in [
        ("foreign", "x509: certificate signed by unknown authority"),
        ("absent", "x509: certificate signed by unknown authority"),
        ("name", "connection refused"),
    ] {
        let status = post_case(&test, case)
            .await
            .expect_reason(500, "InternalError");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(part), "{case}: {message}");
    }
    assert!(requests(&server, "foreign").is_empty() && requests(&server, "absent").is_empty());
}

#[tokio::test]
async fn missing_service_is_named() {
    let test = start().await;
    let server = WebhookServer::start(&[], misbehave).await;
    let mut missing = case(&test, &server, "missing");
    missing["clientConfig"]["url"].take();
    missing["clientConfig"]["service"] = json!({"namespace": test.namespace, "name": "gone"});
    register(
        &test,
        &server,
        "MutatingWebhookConfiguration",
        vec![missing],
    )
    .await;
    let status = post_case(&test, "missing")
        .await
        .expect_reason(500, "InternalError");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("service \"gone\" not found"), "{message}");
}

#[tokio::test]
async fn connection_that_the_server_closed_is_replaced() {
    let test = start().await;
    let server = WebhookServer::start(&[&service_name(&test)], |_, review| {
        let mut reply = allow(review);
        reply.headers.push(("connection", "close".to_owned()));
        reply
    })
    .await;
    let hooks = vec![service_hook(&test, &server, "data", &["configmaps"]).await];
    register_validating(&test, &server, hooks).await;
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    for _ in 0..3 {
        test.admin
            .post(&path, &config_map("m"))
            .await
            .expect_status(201);
    }
    wait_for("three calls", async || requests(&server, "data").len() == 3).await;
}
