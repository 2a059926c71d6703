//! Admission webhooks, with a real HTTPS server.

mod failures;
mod matching;
mod mutating;
mod validating;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{Components, Test, config_map, wait_for};
use serde_json::{Value, json};
use testkit_control_plane::{WebhookReply, WebhookServer};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Builds a `v1` response for a review.
fn respond(review: &Value, mut fields: Value) -> WebhookReply {
    fields["uid"] = review["request"]["uid"].clone();
    WebhookReply::json(
        &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": fields}),
    )
}

pub(crate) fn allow(review: &Value) -> WebhookReply {
    respond(review, json!({"allowed": true}))
}

pub(crate) fn deny(review: &Value, message: &str) -> WebhookReply {
    respond(
        review,
        json!({"allowed": false, "status": {"message": message, "code": 403, "reason": "Forbidden"}}),
    )
}

pub(crate) fn patch(review: &Value, operations: &Value) -> WebhookReply {
    let patch = STANDARD.encode(operations.to_string());
    respond(
        review,
        json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}),
    )
}

/// Returns a webhook at a path of the server, for writes of `resources` in the test's namespace.
pub(crate) fn hook(test: &Test, server: &WebhookServer, name: &str, resources: &[&str]) -> Value {
    json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {
            "url": server.url(&format!("/{name}")),
            "caBundle": STANDARD.encode(server.authority()),
        },
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": test.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
    })
}

/// Returns a webhook like [`hook`] that is called through a Service of the namespace. The server's
/// certificate has to have the name [`service_name`].
async fn service_hook(
    test: &Test,
    server: &WebhookServer,
    name: &str,
    resources: &[&str],
) -> Value {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    test.create(&test.core("services"), &service).await;
    let mut hook = hook(test, server, name, resources);
    hook["clientConfig"]["url"].take();
    hook["clientConfig"]["service"] = json!({"namespace": test.namespace, "name": "hook",
        "path": format!("/{name}"), "port": server.port()});
    hook
}

fn service_name(test: &Test) -> String {
    format!("hook.{}.svc", test.namespace)
}

/// Creates a configuration and waits until it is effective.
async fn register(
    test: &Test,
    server: &WebhookServer,
    kind: &str,
    mut hooks: Vec<Value>,
) -> String {
    let mut marker = hook(test, server, "marker", &["configmaps"]);
    marker["objectSelector"] = json!({"matchLabels": {"marker": "true"}});
    hooks.push(marker);
    let plural = format!("{}s", kind.to_lowercase());
    let name = test.name("hooks");
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": hooks});
    let collection = format!("{GROUP}/{plural}");
    test.create(&collection, &configuration).await;
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    let mut object = config_map("marker");
    object["metadata"]["labels"] = json!({"marker": "true"});
    wait_for("the configuration is effective", async || {
        test.admin.post(&path, &object).await;
        let received = server.received();
        received.iter().any(|r| r.path.starts_with("/marker"))
    })
    .await;
    format!("{collection}/{name}")
}

pub(crate) async fn register_validating(
    test: &Test,
    server: &WebhookServer,
    hooks: Vec<Value>,
) -> String {
    register(test, server, "ValidatingWebhookConfiguration", hooks).await
}

pub(crate) async fn register_mutating(
    test: &Test,
    server: &WebhookServer,
    hooks: Vec<Value>,
) -> String {
    register(test, server, "MutatingWebhookConfiguration", hooks).await
}

/// Returns the requests that a webhook has received, in order, without those of [`register`].
pub(crate) fn requests(server: &WebhookServer, name: &str) -> Vec<Value> {
    let prefix = format!("/{name}?");
    let received = server.received().into_iter();
    received
        .filter(|received| received.path.starts_with(&prefix))
        .map(|mut received| received.review["request"].take())
        .filter(|request| request["name"] != "marker")
        .collect()
}
