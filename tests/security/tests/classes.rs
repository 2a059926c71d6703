//! One test for each class of earlier vulnerabilities of Kubernetes and etcd that no other test
//! covers.

#![allow(clippy::unwrap_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options};

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

async fn create_namespace(admin: &Caller, name: &str, labels: Value) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    admin
        .post("/api/v1/namespaces", &namespace)
        .await
        .expect_success();
}

/// CVE-2022-3162: a name or namespace is one segment of a key, whatever its spelling.
#[tokio::test(flavor = "multi_thread")]
async fn names_cannot_leave_their_prefix_in_the_store() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    create_namespace(&admin, "victim", json!({})).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    admin
        .post("/api/v1/namespaces/victim/secrets", &secret)
        .await
        .expect_success();
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);

    for name in [
        "..",
        ".",
        "a/b",
        "../victim/s",
        "..%2Fvictim%2Fs",
        "a\u{0}b",
        "/registry/secrets/victim/s",
    ] {
        for kind in ["ConfigMap", "Secret", "Lease"] {
            let base = if kind == "Lease" {
                "/apis/coordination.k8s.io/v1"
            } else {
                "/api/v1"
            };
            let version = if kind == "Lease" {
                "coordination.k8s.io/v1"
            } else {
                "v1"
            };
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
            let path = format!("{base}/namespaces/default/{}s", kind.to_lowercase());
            let reply = mallory.post(&path, &object).await;
            assert!(
                matches!(reply.status, 400 | 422),
                "{kind} {name:?}: {} {}",
                reply.status,
                reply.text()
            );
        }
    }
    let paths = [
        "/api/v1/namespaces/default/secrets/..%2Fvictim%2Fs",
        "/api/v1/namespaces/default/secrets/%2e%2e/victim/s",
        "/api/v1/namespaces/default/secrets/..%2f..%2fsecrets%2fvictim%2fs",
        "/api/v1/namespaces/default%2F..%2Fvictim/secrets/s",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name=../victim/s",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.namespace=victim",
    ];
    for path in paths {
        let reply = mallory.get(path).await;
        assert!(
            !reply.text().contains("aGlkZGVu"),
            "{path} gave the Secret away: {}",
            reply.text()
        );
    }
}

/// The same for kinds that are off by default.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_unstable_kinds_cannot_leave_their_prefix_in_the_store() {
    let options = Options {
        api_server: vec![
            "--runtime-config=api/alpha=true,api/beta=true".to_owned(),
            "--feature-gates=ClusterTrustBundle=true,StorageVersionMigrator=true".to_owned(),
        ],
        ..Options::default()
    };
    let plane = ControlPlane::start_with(options).await;
    let admin = plane.admin();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    admin.post(secrets, &secret).await.expect_success();
    let device =
        json!({"deviceSelector": {"driver": "d.io"}, "taint": {"key": "e.io/k", "effect": "None"}});
    let migration = json!({"resource": {"group": "apps", "resource": "deployments"}});
    let candidate = json!({"leaseName": "l", "binaryVersion": "1.36.0",
        "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"});
    let kinds = [
        (
            "certificates.k8s.io/v1beta1",
            "clustertrustbundles",
            json!({"trustBundle": "x"}),
        ),
        (
            "coordination.k8s.io/v1beta1",
            "namespaces/default/leasecandidates",
            candidate,
        ),
        (
            "internal.apiserver.k8s.io/v1alpha1",
            "storageversions",
            json!({}),
        ),
        ("resource.k8s.io/v1beta2", "devicetaintrules", device),
        (
            "storagemigration.k8s.io/v1beta1",
            "storageversionmigrations",
            migration,
        ),
    ];
    for (version, resource, spec) in kinds {
        let path = format!("/apis/{version}/{resource}");
        admin.get(&path).await.expect_success();
        for name in [
            "..",
            ".",
            "a/b",
            "../../secrets/default/s",
            "..%2Fs",
            "a%b",
            "a\u{0}b",
        ] {
            let object = json!({"metadata": {"name": name}, "spec": spec});
            let reply = admin.post(&path, &object).await;
            let text = reply.text();
            assert_eq!(reply.status, 422, "{path} {name:?}: {text}");
            assert!(text.contains("metadata.name"), "{path} {name:?}: {text}");
        }
        for name in ["..%2F..%2Fsecrets%2Fdefault%2Fs", "%2e%2e", "a%2Fb"] {
            let path = format!("{path}/{name}");
            let object = json!({"spec": spec});
            for (verb, reply) in [
                ("get", admin.get(&path).await),
                ("update", admin.put(&path, &object).await),
                ("patch", admin.merge_patch(&path, &object).await),
                (
                    "apply",
                    admin
                        .apply(&format!("{path}?fieldManager=m"), &object)
                        .await,
                ),
                ("delete", admin.delete(&path).await),
            ] {
                let status = reply.status;
                let is_refused = (400..500).contains(&status) || status == 301;
                assert!(is_refused, "{verb} {path}: {status}");
                assert!(!reply.text().contains("aGlkZGVu"), "{verb} {path}");
            }
        }
    }
    admin.get(&format!("{secrets}/s")).await.expect_success();
}

/// A continue token comes from the client: it must not widen the scope of a list.
#[tokio::test(flavor = "multi_thread")]
async fn forged_continue_token_shows_nothing_of_another_namespace() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    for namespace in ["a-victim", "z-victim"] {
        create_namespace(&admin, namespace, json!({})).await;
        let object = config_map("hidden");
        admin
            .post(
                &format!("/api/v1/namespaces/{namespace}/configmaps"),
                &object,
            )
            .await
            .expect_success();
    }
    let list = admin
        .get("/api/v1/namespaces/default/configmaps")
        .await
        .expect_success()
        .json();
    let revision: i64 = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    plane
        .grant(
            "mallory",
            "default",
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]),
        )
        .await;
    let mallory = plane.user("mallory", None);

    for start in [
        "../a-victim/",
        "../z-victim/hidden",
        "/z-victim/",
        "\u{0}",
        "./../z-victim/",
        "zzzz\u{0}",
        "a/../../z-victim/h",
    ] {
        for revision in [revision, 0, -1] {
            let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string();
            let token = URL_SAFE_NO_PAD.encode(token);
            let path = format!("/api/v1/namespaces/default/configmaps?limit=5&continue={token}");
            let reply = mallory.get(&path).await;
            assert!(
                !reply.text().contains("hidden"),
                "{start:?} at {revision}: {}",
                reply.text()
            );
            assert!(
                matches!(reply.status, 200 | 400 | 410),
                "{start:?} at {revision}: {}",
                reply.status
            );
        }
    }
}

/// CVE-2024-7598: NetworkPolicies apply to a pod until it has terminated.
#[tokio::test(flavor = "multi_thread")]
async fn network_policies_outlive_the_pods_of_a_deleted_namespace() {
    let plane = ControlPlane::start().await;
    plane.start_controllers("namespace-controller,serviceaccount-controller");
    let admin = plane.admin();
    create_namespace(&admin, "leaving", json!({})).await;
    let base = "/api/v1/namespaces/leaving";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post(&format!("{base}/serviceaccounts"), &account)
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}});
    admin
        .post(&format!("{base}/pods"), &pod)
        .await
        .expect_success();
    let policies = "/apis/networking.k8s.io/v1/namespaces/leaving/networkpolicies";
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    admin.post(policies, &policy).await.expect_success();

    admin
        .delete("/api/v1/namespaces/leaving")
        .await
        .expect_success();
    wait_until("the pod terminates", || async {
        let pod = admin.get(&format!("{base}/pods/p")).await.json();
        pod["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    // The controller works on the namespace every second or so; the policy must survive all of its
    // reconciles.
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        admin
            .get(&format!("{policies}/deny"))
            .await
            .expect_success();
    }
    let freed = json!({"metadata": {"finalizers": null}});
    admin
        .merge_patch(&format!("{base}/pods/p"), &freed)
        .await
        .expect_success();
    wait_until("the namespace is deleted", || async {
        admin.get("/api/v1/namespaces/leaving").await.status == 404
    })
    .await;
}

/// CVE-2023-2727, CVE-2023-2728: every kind of container passes the same admission, through every
/// kind of write.
#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_containers_pass_pod_security_however_they_are_written() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    create_namespace(
        &admin,
        "guarded",
        json!({"pod-security.kubernetes.io/enforce": "baseline"}),
    )
    .await;
    let base = "/api/v1/namespaces/guarded";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin
        .post(&format!("{base}/serviceaccounts"), &account)
        .await
        .expect_success();
    let privileged =
        json!({"name": "x", "image": "example.com/c:1", "securityContext": {"privileged": true}});
    let plain = json!({"name": "c", "image": "example.com/c:1"});
    for list in ["containers", "initContainers"] {
        let mut spec = json!({"containers": [plain]});
        spec[list] = json!([privileged]);
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": spec});
        admin
            .post(&format!("{base}/pods"), &pod)
            .await
            .expect_status(403);
        admin
            .apply(&format!("{base}/pods/bad?fieldManager=m"), &pod)
            .await
            .expect_status(403);
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [plain]}});
    let pod = admin
        .post(&format!("{base}/pods"), &pod)
        .await
        .expect_success()
        .json();

    let path = format!("{base}/pods/p/ephemeralcontainers");
    let patch = json!({"spec": {"ephemeralContainers": [privileged]}});
    let mut whole = pod.clone();
    whole["spec"]["ephemeralContainers"] = json!([privileged]);
    admin.put(&path, &whole).await.expect_status(403);
    admin.merge_patch(&path, &patch).await.expect_status(403);
    let operations =
        json!([{"op": "add", "path": "/spec/ephemeralContainers", "value": [privileged]}]);
    admin
        .json_patch(&path, &operations)
        .await
        .expect_status(403);
    let strategic = "application/strategic-merge-patch+json";
    admin
        .send_json(Method::PATCH, &path, strategic, &patch)
        .await
        .expect_status(403);
    let mut intent = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    intent["spec"] = patch["spec"].clone();
    admin
        .apply(&format!("{path}?fieldManager=m&force=true"), &intent)
        .await
        .expect_status(403);
    // Not through the main resource either.
    let reply = admin.put(&format!("{base}/pods/p"), &whole).await;
    assert!(matches!(reply.status, 403 | 422), "{}", reply.text());
    let stored = admin
        .get(&format!("{base}/pods/p"))
        .await
        .expect_success()
        .json();
    assert!(stored["spec"]["ephemeralContainers"].is_null(), "{stored}");
}

/// CVE-2019-11253, CVE-2019-1002100: bodies that expand when they are parsed are rejected in
/// bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_expand_are_refused_in_bounded_time() {
    let plane = ControlPlane::start().await;
    let user = plane.user("tenant", None);
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let aliases: String = (1..30)
        .map(|n| format!("x{n}: &x{n} [*x{p}, *x{p}, *x{p}, *x{p}]\n", p = n - 1))
        .collect();
    let repeated = (0..40_000)
        .map(|n| format!("\"k{}\":0", n % 3))
        .collect::<Vec<_>>()
        .join(",");
    let unknown = (0..60_000)
        .map(|n| format!("\"k{n}\":0"))
        .collect::<Vec<_>>()
        .join(",");
    let bodies = [
        (
            "yaml aliases",
            "application/yaml",
            format!("x0: &x0 [a, b]\n{aliases}"),
        ),
        ("nested yaml", "application/yaml", "[".repeat(100_000)),
        ("nested json", "application/json", "[".repeat(100_000)),
        (
            "nested objects",
            "application/json",
            "{\"a\":".repeat(100_000),
        ),
        (
            "duplicate keys",
            "application/json",
            format!("{{{repeated}}}"),
        ),
        (
            "duplicate yaml keys",
            "application/yaml",
            format!("{{{repeated}}}"),
        ),
        (
            "unknown fields",
            "application/json",
            format!("{{{unknown}}}"),
        ),
        (
            "nested protobuf",
            "application/vnd.kubernetes.protobuf",
            format!("k8s\u{0}{}", "\u{a}\u{7f}".repeat(50_000)),
        ),
        (
            "long number",
            "application/json",
            format!("{{\"a\":{}}}", "9".repeat(1_000_000)),
        ),
    ];
    for (name, content_type, body) in bodies {
        let begun = Instant::now();
        let path = format!("{reviews}?fieldValidation=Strict");
        let reply = user
            .send(Method::POST, &path, &[("content-type", content_type)], body)
            .await
            .unwrap();
        assert!(
            (400..500).contains(&reply.status),
            "{name}: {} {}",
            reply.status,
            reply.text()
        );
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{name} took {:?}",
            begun.elapsed()
        );
    }
    let headers: Vec<(String, String)> = (0..3000)
        .map(|n| (format!("x-h{n}"), "v".repeat(100)))
        .collect();
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    // Either a response or a closed connection.
    if let Ok(reply) = user.send(Method::GET, "/version", &headers, "").await {
        assert!(
            (400..500).contains(&reply.status),
            "huge headers: {}",
            reply.status
        );
    }
    user.get("/version").await.expect_success();
}

/// Clients and front proxies have separate CAs: a certificate of one is not valid for the other.
#[tokio::test(flavor = "multi_thread")]
async fn client_certificate_cannot_act_as_front_proxy() {
    let plane = ControlPlane::start().await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let pretender = plane.user("front-proxy-client", Some("system:authenticated"));
    let spellings = [
        ("x-remote-user", "x-remote-group"),
        ("X-Remote-User", "X-Remote-Group"),
    ];
    for (user, group) in spellings {
        let caller = pretender
            .clone()
            .with_header(user, "root")
            .with_header(group, "system:masters");
        let own = caller.post(reviews, &review).await.expect_success().json();
        assert_eq!(
            own["status"]["userInfo"]["username"], "front-proxy-client",
            "{own}"
        );
        assert!(
            !own["status"]["userInfo"]["groups"]
                .to_string()
                .contains("masters"),
            "{own}"
        );
    }
    let anonymous = plane
        .anonymous()
        .with_header("x-remote-user", "root")
        .with_header("x-remote-group", "system:masters");
    let reply = anonymous.get("/api/v1/secrets").await;
    assert!(matches!(reply.status, 401 | 403), "{}", reply.text());
}

async fn wait_until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "not within 60 s: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
