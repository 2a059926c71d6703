//! No credential or secret appears in a log, at any verbosity. This is a separate test binary,
//! because logging is per process.

#![allow(clippy::unwrap_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use testkit_control_plane::{ControlPlane, Options, WebhookReply, WebhookServer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Collects log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const STATIC_TOKEN: &str = "static-token-0123456789";
const SECRET: &str = "the-value-of-a-secret";
const PATCHED: &str = "the-patched-value-of-a-secret";
/// Bootstrap tokens, one of which does not exist.
const BOOTSTRAP: &str = "joins1.bootstraptoken01";
const UNKNOWN: &str = "absent.unknowntoken0001";
const WRONG_TOKEN: &str = "a-token-that-is-not-accepted";
/// Credential of the API server for its authorization webhook.
const HOOK_TOKEN: &str = "token-for-the-authorization-webhook";

/// CVE-2019-11250, CVE-2020-8563 to 8566: tokens, authorization headers, Secrets and keys stay out
/// of the logs.
#[tokio::test(flavor = "multi_thread")]
async fn highest_verbosity_logs_no_credential_and_no_secret() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        // The filter decides; without this, the default level would apply as well.
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish()
        .with(base_telemetry::level_filter(10))
        .init();

    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, format!("{STATIC_TOKEN},robot,1\n")).unwrap();
    let authorizer = start_echo(400).await;
    let api_server = vec![
        format!(
            "--authorization-config={}",
            write_authorization(folder.path(), &authorizer).display()
        ),
        format!("--token-auth-file={}", tokens.display()),
        "--enable-bootstrap-token-auth=true".to_owned(),
    ];
    let plane = ControlPlane::start_with(Options {
        api_server,
        nodes: vec!["n1".into()],
        ..Options::default()
    })
    .await;
    plane.start_controllers("*,bootstrap-signer-controller,token-cleaner-controller");
    plane.start_kubelet("n1", &[]).await.unwrap();
    let admin = plane.admin();

    plane
        .bearer(STATIC_TOKEN)
        .get("/api/v1/namespaces")
        .await
        .expect_status(500);
    assert!(!authorizer.received().is_empty(), "no review was sent");
    plane
        .bearer(WRONG_TOKEN)
        .get("/api/v1/namespaces")
        .await
        .expect_status(401);
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": SECRET}});
    admin.post(secrets, &secret).await.expect_success();
    admin
        .merge_patch(
            &format!("{secrets}/s"),
            &json!({"stringData": {"k": PATCHED}}),
        )
        .await
        .expect_success();
    // Rejected writes are logged.
    admin.post(secrets, &secret).await.expect_status(409);
    let bad = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "BAD"}, "stringData": {"k": SECRET}});
    admin.post(secrets, &bad).await.expect_status(422);

    let server = start_echo(500).await;
    let authority = STANDARD.encode(server.authority());
    let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "echo"}, "webhooks": [{"name": "echo.example.com", "failurePolicy": "Ignore",
            "clientConfig": {"url": server.url("/"), "caBundle": authority},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["secrets"]}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None"}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(path, &hooks).await.expect_success();
    for _ in 0..1200 {
        let change = json!({"stringData": {"k": PATCHED}});
        admin
            .merge_patch(&format!("{secrets}/s"), &change)
            .await
            .expect_success();
        if !server.received().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(!server.received().is_empty(), "the webhook was not called");

    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    await_success(&admin, account).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let token = admin
        .post(&format!("{account}/token"), &request)
        .await
        .expect_success()
        .json();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    plane
        .bearer(&token)
        .get("/api/v1/namespaces")
        .await
        .expect_status(403);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.clone()}});
    let reviewed = admin
        .post("/apis/authentication.k8s.io/v1/tokenreviews", &review)
        .await
        .expect_success()
        .json();
    assert_eq!(reviewed["status"]["authenticated"], true, "{reviewed}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n1",
        "containers": [{"name": "c", "image": "example.com/c:1",
            "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}]}});
    admin
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect_success();
    await_running(&admin, "/api/v1/namespaces/default/pods/p").await;

    let node_key = join_node(&plane).await;

    // Escape sequences of a terminal, in a path, a header and an object.
    plane
        .anonymous()
        .with_header("user-agent", "a%1b[31m")
        .get("/%1b[31mred")
        .await;
    let escape = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "\u{1b}[31m"}});
    admin.post(secrets, &escape).await.expect_status(422);
    admin
        .get("/api/v1/namespaces/%1b[31m/secrets/%1b[31m")
        .await
        .expect_status(404);

    let logged = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(
        logged.contains("serving HTTPS"),
        "the log is empty: {} bytes",
        logged.len()
    );
    assert!(!logged.contains(&authority), "a CA bundle was logged");
    assert!(
        logged.contains("failing open"),
        "the failed webhook was not logged"
    );
    assert!(
        logged.contains("an authorization webhook failed")
            && !logged.contains("resourceAttributes"),
        "the failed authorization webhook was not logged, or its review was"
    );
    assert!(
        !logged.contains('\u{1b}'),
        "an escape character was logged raw"
    );
    assert!(
        logged.lines().any(|line| line.contains("DEBUG")),
        "the verbosity had no effect"
    );
    // The header of every token of the service account issuer: `{"alg":`. Controllers and the
    // kubelet use such tokens.
    let token_line = logged.lines().find(|line| line.contains("eyJhbGciOi"));
    assert!(token_line.is_none(), "a token was logged: {token_line:?}");
    let key = std::fs::read_to_string(plane.key("sa")).unwrap();
    let key_line = key.lines().nth(1).unwrap();
    for secret in [
        STATIC_TOKEN,
        WRONG_TOKEN,
        HOOK_TOKEN,
        SECRET,
        PATCHED,
        BOOTSTRAP,
        UNKNOWN,
        // A part of a token is logged nowhere either.
        &BOOTSTRAP[7..],
        &UNKNOWN[7..],
        token.as_str(),
        key_line,
        &node_key,
    ] {
        for form in [secret.to_owned(), STANDARD.encode(secret)] {
            let line = logged.lines().find(|line| line.contains(&form));
            assert!(line.is_none(), "{form:?} was logged: {line:?}");
        }
    }
}

/// Starts a webhook that echoes what it was sent in its error.
async fn start_echo(status: u16) -> WebhookServer {
    WebhookServer::start(&[], move |_, review| WebhookReply {
        status,
        body: review.to_string().into(),
        ..WebhookReply::json(&json!({}))
    })
    .await
}

/// Writes a configuration in which a webhook reviews the requests of the static token's user, and
/// returns its path.
fn write_authorization(folder: &Path, server: &WebhookServer) -> PathBuf {
    let kubeconfig = folder.join("webhook.kubeconfig");
    let cluster = json!({"server": server.url("/"),
        "certificate-authority-data": STANDARD.encode(server.authority())});
    let content = json!({"current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": HOOK_TOKEN}}]});
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    let webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
        "matchConditions": [{"expression": "request.user == 'robot'"}],
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}});
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthorizationConfiguration", "authorizers": [
            {"type": "Webhook", "name": "hook", "webhook": webhook},
            {"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"}]});
    let path = folder.join("authorization.json");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Lets a kubelet request its certificates with a bootstrap token, after another one has failed with
/// a token that does not exist. Returns a line of its private key.
async fn join_node(plane: &ControlPlane) -> String {
    let admin = plane.admin();
    let group = "rbac.authorization.k8s.io";
    let approve = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    for (name, role) in [
        ("bootstrap", "system:node-bootstrapper"),
        ("approve", approve),
    ] {
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:bootstrappers"}]});
        let path = format!("/apis/{group}/v1/clusterrolebindings");
        admin.post(&path, &binding).await.expect_success();
    }
    await_success(&admin, "/api/v1/namespaces/kube-system").await;
    let secret = json!({"metadata": {"name": "bootstrap-token-joins1"},
        "type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": "joins1",
            "token-secret": &BOOTSTRAP[7..], "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true"}});
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    admin.post(secrets, &secret).await.expect_success();
    for (name, token, is_known) in [("unknown", UNKNOWN, false), ("known", BOOTSTRAP, true)] {
        let file = plane.token_kubeconfig(name, token);
        let flag = format!("--bootstrap-kubeconfig={}", file.display());
        let started = plane.start_joining_kubelet("n2", &[&flag]).await;
        assert_eq!(started.is_ok(), is_known, "{name}: {started:?}");
    }
    await_success(&admin, "/api/v1/nodes/n2").await;
    // A file of kubeconfig names the one with certificate and key.
    let kubeconfig = std::fs::read_to_string(plane.joining_kubeconfig("n2")).unwrap();
    let file = kubeconfig
        .split(['"', ' ', '\n'])
        .find(|word| word.ends_with("kubelet-client-current.pem"));
    let pem = std::fs::read_to_string(file.unwrap()).unwrap();
    let key = pem.split_once("PRIVATE KEY-----\n").unwrap().1;
    key.lines().next().unwrap().to_owned()
}

async fn await_success(caller: &testkit_control_plane::Caller, path: &str) {
    for _ in 0..3000 {
        if caller.get(path).await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{path} did not appear within 60 s");
}

async fn await_running(caller: &testkit_control_plane::Caller, path: &str) {
    let mut last = serde_json::Value::Null;
    for _ in 0..3000 {
        last = caller.get(path).await.json();
        if last["status"]["phase"] == "Running" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let events = caller.get("/api/v1/namespaces/default/events").await.json();
    let events: Vec<String> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{}: {}", e["reason"], e["message"]))
        .collect();
    let events = format!("{events:#?}");
    panic!(
        "{path} was not Running within 60 s: {} {events}",
        last["status"]["containerStatuses"]
    );
}
