//! Admission webhooks: what a webhook, its address or its configuration must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "webhooks/certificates.rs"]
mod certificates;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options, WebhookReply, WebhookServer};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn reply(review: &Value, patch: Option<Value>) -> WebhookReply {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if let Some(patch) = patch {
        response["patch"] = STANDARD.encode(patch.to_string()).into();
        response["patchType"] = "JSONPatch".into();
    }
    WebhookReply::json(&json!({"kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1", "response": response}))
}

fn configuration(server: &WebhookServer, name: &str, resources: &[&str]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{
            "name": format!("{name}.example.com"),
            "clientConfig": {"url": server.url("/"), "caBundle": STANDARD.encode(server.authority())},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5}]})
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Creates a configuration and waits until the webhook is called for dry runs.
async fn register(admin: &Caller, server: &WebhookServer, configuration: &Value) {
    admin
        .post(CONFIGURATIONS, configuration)
        .await
        .expect_success();
    let begun = Instant::now();
    while server.received().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never called");
        admin
            .post(&format!("{MAPS}?dryRun=All"), &config_map("marker"))
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A webhook that may look at one namespace writes neither to another one nor under another name
/// than that of the request. A request without a name was authorized for any, as upstream.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_can_not_move_an_object() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let server = WebhookServer::start(&[], |_, review| {
        let field = review["request"]["object"]["data"]["field"].clone();
        let value = review["request"]["object"]["data"]["value"].clone();
        let patch = field.as_str().map(
            |field| json!([{"op": "add", "path": format!("/metadata/{field}"), "value": value}]),
        );
        reply(review, patch)
    })
    .await;
    register(
        &admin,
        &server,
        &configuration(&server, "move", &["configmaps"]),
    )
    .await;
    for (field, value) in [
        ("namespace", "kube-system"),
        ("name", "given"),
        ("uid", "00000000-0000-0000-0000-000000000000"),
    ] {
        let mut object = config_map("mine");
        object["data"] = json!({"field": field, "value": value});
        admin.post(MAPS, &object).await.expect_status(500);
        let mut generated = object.clone();
        generated["metadata"] = json!({"generateName": "mine-"});
        let expect = if field == "name" { 201 } else { 500 };
        admin.post(MAPS, &generated).await.expect_status(expect);
    }
    let given = admin.get(&format!("{MAPS}/given")).await;
    let given = given.expect_success().json();
    assert_eq!(given["metadata"]["generateName"], "mine-");
    for path in [
        format!("{MAPS}/mine"),
        "/api/v1/namespaces/kube-system/configmaps/mine".to_owned(),
    ] {
        admin.get(&path).await.expect_status(404);
    }
}

/// A redirect would send the object, with the server's credentials for webhooks, elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn redirect_of_a_webhook_is_not_followed() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let target = WebhookServer::start(&[], |_, review| reply(review, None)).await;
    let location = target.url("/");
    let server = WebhookServer::start(&[], move |_, _| WebhookReply {
        status: 307,
        headers: vec![("location", location.clone())],
        body: Default::default(),
        delay: Duration::ZERO,
    })
    .await;
    register(
        &admin,
        &server,
        &configuration(&server, "redirect", &["configmaps"]),
    )
    .await;
    admin.post(MAPS, &config_map("m")).await.expect_status(500);
    assert!(target.received().is_empty());
}

/// Only who may write webhook configurations chooses the addresses that the server connects to.
#[tokio::test(flavor = "multi_thread")]
async fn tenant_can_not_register_a_webhook() {
    let plane = ControlPlane::start().await;
    let server = WebhookServer::start(&[], |_, review| reply(review, None)).await;
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    plane.grant("tenant", "default", rules).await;
    let tenant = plane.user("tenant", None);
    let object = configuration(&server, "spy", &["secrets"]);
    tenant
        .post(CONFIGURATIONS, &object)
        .await
        .expect_status(403);
}

/// An operator can start a server that does not call a broken webhook.
#[tokio::test(flavor = "multi_thread")]
async fn skipped_webhook_does_not_block_the_cluster() {
    let options = Options {
        api_server: vec!["--skip-admission-webhooks=broken.example.com".into()],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    let server = WebhookServer::start(&[], |_, review| reply(review, None)).await;
    let mut broken = configuration(&server, "broken", &["*/*"]);
    broken["webhooks"][0]["clientConfig"]["caBundle"].take();
    admin.post(CONFIGURATIONS, &broken).await.expect_success();
    let working = configuration(&server, "working", &["configmaps"]);
    register(&admin, &server, &working).await;
    admin.post(MAPS, &config_map("m")).await.expect_success();
}

/// Credentials of the admission configuration go to the server that they are named after, over TLS
/// that is verified first.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_sent_to_their_server_only() {
    let own = WebhookServer::start(&[], |_, review| reply(review, None)).await;
    let other = WebhookServer::start(&[], |_, review| reply(review, None)).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("webhooks.kubeconfig");
    let users = json!({"apiVersion": "v1", "kind": "Config", "users": [
        {"name": format!("127.0.0.1:{}", own.port()), "user": {"token": "for-one-server"}}]});
    std::fs::write(&kubeconfig, users.to_string()).unwrap();
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "MutatingAdmissionWebhook", "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": kubeconfig}}]});
    let path = folder.path().join("admission.yaml");
    std::fs::write(&path, file.to_string()).unwrap();
    let options = Options {
        api_server: vec![format!(
            "--admission-control-config-file={}",
            path.display()
        )],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    let mut untrusted = configuration(&own, "untrusted", &["secrets"]);
    untrusted["webhooks"][0]["clientConfig"]["caBundle"] =
        STANDARD.encode(other.authority()).into();
    admin
        .post(CONFIGURATIONS, &untrusted)
        .await
        .expect_success();
    register(&admin, &own, &configuration(&own, "own", &["configmaps"])).await;
    register(
        &admin,
        &other,
        &configuration(&other, "other", &["configmaps"]),
    )
    .await;
    let all = |server: &WebhookServer, expect: &str| {
        let received = server.received();
        received.iter().all(|call| call.authorization == expect)
    };
    assert!(all(&own, "Bearer for-one-server"));
    assert!(all(&other, ""));
    let before = own.received().len();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let path = "/api/v1/namespaces/default/secrets";
    admin.post(path, &secret).await.expect_status(500);
    assert_eq!(own.received().len(), before);
}

/// Neither a patch that copies into itself, nor an endless or deep answer, fills the memory.
#[tokio::test(flavor = "multi_thread")]
async fn answer_of_a_webhook_is_bounded() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let server = WebhookServer::start(&[], |_, review| {
        let body = |text: String| WebhookReply {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: text.into(),
            delay: Duration::ZERO,
        };
        match review["request"]["name"].as_str().unwrap_or_default() {
            "copies" => {
                let mut patch = vec![json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "x".repeat(1000)}})];
                patch.extend((0..40).map(|i| json!({"op": "copy", "from": "/metadata/annotations",
                    "path": format!("/metadata/annotations/a{i}")})));
                reply(review, Some(patch.into()))
            }
            "huge" => body(format!("{{\"a\": \"{}\"}}", "x".repeat(20 << 20))),
            "deep" => body(format!("{{\"response\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000))),
            "switch" => WebhookReply { status: 101, ..body(String::new()) },
            "later" => reply(review, None).after(Duration::from_secs(60)),
            _ => reply(review, None),
        }
    })
    .await;
    let object = configuration(&server, "bombs", &["configmaps"]);
    register(&admin, &server, &object).await;
    for name in ["copies", "huge", "deep", "switch", "later"] {
        let begun = Instant::now();
        admin.post(MAPS, &config_map(name)).await.expect_status(500);
        // The default timeout is 10 s.
        assert!(begun.elapsed() < Duration::from_secs(40), "{name}");
        admin
            .get(&format!("{MAPS}/{name}"))
            .await
            .expect_status(404);
    }
}
