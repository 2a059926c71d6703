//! The audit log: annotations of webhooks, policies and Pod Security, and the webhook backend.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::{config_map, pod, wait_for, wait_for_value};
use serde_json::{Value, json};
use std::path::Path;
use testkit_control_plane::{ControlPlane, WebhookReply, WebhookServer};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn write_policy(folder: &Path) -> String {
    let path = folder.join("policy.yaml");
    let rules = "rules:\n- {level: Request, verbs: [create], namespaces: [default]}\n";
    std::fs::write(
        &path,
        format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}"),
    )
    .unwrap();
    format!("--audit-policy-file={}", path.display())
}

/// Writes a policy that records all requests.
fn write_all(folder: &Path) -> String {
    let path = folder.join("all.yaml");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: Metadata}\n";
    std::fs::write(&path, text).unwrap();
    format!("--audit-policy-file={}", path.display())
}

/// Returns the last complete event of an object.
fn find_event(log: &Path, name: &str) -> Option<Value> {
    let text = std::fs::read_to_string(log).ok()?;
    let mut events = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.rfind(|event| event["stage"] == "ResponseComplete" && event["objectRef"]["name"] == name)
}

fn review(path: &str, review: &Value) -> WebhookReply {
    let patch = json!([{"op": "add", "path": "/data/hooked", "value": "yes"}]).to_string();
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true,
        "auditAnnotations": {"seen": "yes", "not/valid": "no"}});
    match path {
        "/mutate" => {
            response["patch"] = STANDARD.encode(patch).into();
            response["patchType"] = "JSONPatch".into();
        }
        "/broken" => return WebhookReply::json(&json!({})),
        _ => {}
    }
    WebhookReply::json(
        &json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
    )
}

fn hook(server: &WebhookServer, name: &str) -> Value {
    json!({"name": format!("{name}.example.com"), "failurePolicy": "Ignore",
        "clientConfig": {"url": server.url(&format!("/{name}")), "caBundle": STANDARD.encode(server.authority())},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
        "admissionReviewVersions": ["v1"], "sideEffects": "None"})
}

#[tokio::test]
async fn admission_annotates_events() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let path = format!("--audit-log-path={}", log.display());
    let plane = ControlPlane::start_with_flags(&[&write_policy(folder.path()), &path]).await;
    let admin = plane.admin();
    let server = WebhookServer::start(&[], review).await;
    for (kind, name) in [("Mutating", "mutate"), ("Validating", "broken")] {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": "c"},
            "webhooks": [hook(&server, name)]});
        let collection = format!("{GROUP}/{}webhookconfigurations", kind.to_lowercase());
        admin.post(&collection, &object).await.expect_success();
    }
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}, {"expression": "object.data.size() > 9", "message": "few"}],
        "auditAnnotations": [{"key": "size", "valueExpression": "string(object.data.size())"},
            {"key": "none", "valueExpression": "null"}]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "sized"}, "spec": spec});
    admin
        .post(&format!("{GROUP}/validatingadmissionpolicies"), &policy)
        .await
        .expect_success();
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "sized", "validationActions": ["Warn", "Audit"]}});
    admin
        .post(
            &format!("{GROUP}/validatingadmissionpolicybindings"),
            &binding,
        )
        .await
        .expect_success();
    wait_for("webhooks and policy are effective", async || {
        let reply = admin
            .post(&format!("{MAPS}?dryRun=All"), &config_map("probe"))
            .await;
        reply.json()["data"]["hooked"] == "yes" && !reply.warnings().is_empty()
    })
    .await;
    admin.post(MAPS, &config_map("m")).await.expect_success();
    let event = find_event(&log, "m").unwrap();
    let annotations = &event["annotations"];
    let parsed =
        |key: &str| -> Value { serde_json::from_str(annotations[key].as_str().unwrap()).unwrap() };
    let called = json!({"configuration": "c", "webhook": "mutate.example.com", "mutated": true});
    assert_eq!(
        parsed("mutation.webhook.admission.k8s.io/round_0_index_0"),
        called
    );
    let patch = parsed("patch.webhook.admission.k8s.io/round_0_index_0");
    assert_eq!(patch["patch"][0]["path"], "/data/hooked");
    assert_eq!(annotations["mutate.example.com/seen"], "yes");
    assert_eq!(annotations.get("mutate.example.com/not/valid"), None);
    let failed = &annotations["failed-open.validating.webhook.admission.k8s.io/round_0_index_0"];
    assert_eq!(failed, "broken.example.com");
    let failure = parsed("validation.policy.admission.k8s.io/validation_failure");
    let expect = json!([{"message": "few", "policy": "sized", "binding": "b", "expressionIndex": 1,
        "validationActions": ["Warn", "Audit"]}]);
    assert_eq!(failure, expect);
    assert_eq!(annotations["sized/size"], "2");
    assert_eq!(annotations.get("sized/none"), None);
    assert_eq!(
        event["requestObject"]["data"].get("hooked"),
        None,
        "the body as it was sent"
    );
}

#[tokio::test]
async fn pod_security_annotates_events() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let path = format!("--audit-log-path={}", log.display());
    let plane = ControlPlane::start_with_flags(&[&write_policy(folder.path()), &path]).await;
    let admin = plane.admin();
    let labels =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/audit": "restricted"}}});
    admin
        .merge_patch("/api/v1/namespaces/default", &labels)
        .await
        .expect_success();
    wait_for("the service account of the namespace", async || {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        admin
            .post("/api/v1/namespaces/default/serviceaccounts", &account)
            .await;
        admin
            .post("/api/v1/namespaces/default/pods", &pod("p"))
            .await
            .status
            == 201
    })
    .await;
    let event = find_event(&log, "p").unwrap();
    let annotations = &event["annotations"];
    assert_eq!(
        annotations["pod-security.kubernetes.io/enforce-policy"],
        "privileged:latest"
    );
    let found = annotations["pod-security.kubernetes.io/audit-violations"]
        .as_str()
        .unwrap();
    assert!(
        found.starts_with("would violate PodSecurity \"restricted:latest\": "),
        "{found}"
    );
}

#[tokio::test]
async fn webhook_receives_lists_of_events() {
    let folder = tempfile::tempdir().unwrap();
    let server = WebhookServer::start(&[], |_, _| WebhookReply::json(&json!({}))).await;
    let config = folder.path().join("webhook.yaml");
    let cluster = json!({"server": server.url("/events"),
        "certificate-authority-data": STANDARD.encode(server.authority())});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": cluster}]});
    std::fs::write(&config, kubeconfig.to_string()).unwrap();
    let config = format!("--audit-webhook-config-file={}", config.display());
    let policy = write_policy(folder.path());
    let wait = "--audit-webhook-batch-max-wait=100ms";
    let plane = ControlPlane::start_with_flags(&[&policy, &config, wait]).await;
    plane
        .admin()
        .post(MAPS, &config_map("m"))
        .await
        .expect_success();
    wait_for("the webhook has the event", async || {
        server.received().iter().any(|received| {
            let items = received.review["items"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            received.review["kind"] == "EventList"
                && items.iter().any(|event| event["objectRef"]["name"] == "m")
        })
    })
    .await;
}

#[tokio::test]
async fn deprecated_versions_are_annotated() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let path = format!("--audit-log-path={}", log.display());
    let versions = "--runtime-config=resource.k8s.io/v1beta2=true";
    let plane = ControlPlane::start_with_flags(&[
        "--audit-log-mode=blocking",
        &write_all(folder.path()),
        &path,
        versions,
    ])
    .await;
    let admin = plane.admin();
    for (version, deprecated, removed) in [
        ("v1", Value::Null, Value::Null),
        ("v1beta2", json!("true"), json!("1.39")),
    ] {
        let path = format!("/apis/resource.k8s.io/{version}/deviceclasses/of-{version}");
        admin.get(&path).await;
        let name = format!("of-{version}");
        let event = wait_for_value("the event", async || find_event(&log, &name)).await;
        let annotations = &event["annotations"];
        assert_eq!(annotations["k8s.io/deprecated"], deprecated, "{event}");
        assert_eq!(annotations["k8s.io/removed-release"], removed, "{event}");
    }
}
