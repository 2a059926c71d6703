//! Authorization webhooks: every door asks them, and what a silent, broken or recursive webhook or a
//! changed configuration must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, Options, Reply, WebhookReply, WebhookServer};

/// Longer than the interval in which the file is checked.
const PATIENCE: Duration = Duration::from_secs(40);
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io";
/// A request for a client certificate of the user `first`.
const SIGNING_REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIIBATCBpwIBADBFMQ4wDAYDVQQDDAVmaXJzdDEPMA0GA1UEAwwGc2Vjb25kMRAw
DgYDVQQKDAdncm91cC1hMRAwDgYDVQQKDAdncm91cC1iMFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEQJKImVzyvscbys2/oL0aHx5yQsiV1SGDW2JT+bR7aPN1nl+F
4sb2gmFHmi6h7mKPFb449HOyeG2uZ+hQfrPgq6AAMAoGCCqGSM49BAMCA0kAMEYC
IQDWVHcg2o86m9+EGi1k0VqQwl/S1bl63KOvNjGhke67GAIhAItUHzUfOzP0x2tO
6kdPNdZX7wn1v5bxVtZ+eF50ew1I
-----END CERTIFICATE REQUEST-----
";

/// A webhook over TLS on loopback.
struct Hook(WebhookServer);

impl Hook {
    /// Starts a webhook whose handler returns the status for a review's spec.
    async fn start(decide: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let server = WebhookServer::start(&[], move |_, review| {
            let status = decide(&review["spec"]);
            WebhookReply::json(&json!({"apiVersion": review["apiVersion"],
                "kind": "SubjectAccessReview", "status": status}))
        });
        Hook(server.await)
    }

    /// Starts a webhook that denies what `denied` names, as `USER VERB RESOURCE-OR-PATH`, and allows
    /// what `allowed` names.
    async fn with_lists(allowed: &'static [&str], denied: &'static [&str]) -> Self {
        Self::start(move |spec| {
            let asked = describe(spec);
            if denied.contains(&asked.as_str()) {
                return json!({"allowed": false, "denied": true, "reason": "denied by the hook"});
            }
            json!({"allowed": allowed.contains(&asked.as_str())})
        })
        .await
    }

    fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let authority = STANDARD.encode(self.0.authority());
        let cluster = json!({"server": self.0.url("/authorize"),
            "certificate-authority-data": authority});
        write_kubeconfig(folder, cluster, json!({"token": "of-the-server"}))
    }

    /// Returns what was asked so far.
    fn asked(&self) -> Vec<String> {
        let received = self.0.received();
        received
            .iter()
            .map(|r| describe(&r.review["spec"]))
            .collect()
    }

    fn count(&self, asked: &str) -> usize {
        self.asked().iter().filter(|found| *found == asked).count()
    }
}

fn write_kubeconfig(folder: &Path, cluster: Value, user: Value) -> PathBuf {
    let path = folder.join("webhook.kubeconfig");
    let config = json!({"current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}]});
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Describes a review: `jane get pods/log`, `jane get /metrics`.
fn describe(spec: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let user = text(&spec["user"]);
    if let Some(path) = spec["nonResourceAttributes"].as_object() {
        return format!("{user} {} {}", text(&path["verb"]), text(&path["path"]));
    }
    let resource = &spec["resourceAttributes"];
    let target = match text(&resource["subresource"]).as_str() {
        "" => text(&resource["resource"]),
        subresource => format!("{}/{subresource}", text(&resource["resource"])),
    };
    format!("{user} {} {target}", text(&resource["verb"]))
}

/// Returns a webhook of the configuration with these fields besides the required ones.
fn webhook(kubeconfig: &Path, more: &Value) -> Value {
    let mut webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "Deny",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig}});
    for (name, value) in more.as_object().unwrap() {
        webhook[name] = value.clone();
    }
    json!({"type": "Webhook", "name": "hook", "webhook": webhook})
}

fn configuration(webhooks: &[Value]) -> Value {
    let mut authorizers = webhooks.to_vec();
    authorizers.push(json!({"type": "Node", "name": "node"}));
    authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
        "authorizers": authorizers})
}

fn write_config(path: &Path, config: &Value) {
    // Renamed into place, so that no half of a file is read.
    let next = path.with_extension("next");
    std::fs::write(&next, config.to_string()).unwrap();
    std::fs::rename(next, path).unwrap();
}

async fn start_plane(config: &Path) -> ControlPlane {
    let flag = format!("--authorization-config={}", config.display());
    ControlPlane::start_with_flags(&[&flag]).await
}

/// Starts a control plane with one webhook before Node and RBAC.
async fn start_with(hook: &Hook, folder: &Path, more: &Value) -> ControlPlane {
    let config = folder.join("authorization.json");
    write_config(
        &config,
        &configuration(&[webhook(&hook.kubeconfig(folder), more)]),
    );
    start_plane(&config).await
}

fn status_of(reply: Reply) -> Value {
    reply.expect_success().json()["status"].clone()
}

async fn review_self(caller: &Caller, attributes: Value) -> Value {
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
    let path = format!("{REVIEWS}/selfsubjectaccessreviews");
    status_of(caller.post(&path, &review).await)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

/// Requests for objects, collections, paths, watches and connections are asked about with their
/// attributes. A denial can't be undone by RBAC, and administrators are never asked about.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_requests_before_rbac() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(
        &[
            "jane list configmaps",
            "jane get /metrics",
            "jane watch configmaps",
            "jane get pods/exec",
        ],
        &["jane delete configmaps"],
    )
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]}]);
    plane.grant("jane", "default", rules).await;
    let jane = plane.user("jane", Some("dev"));
    let maps = "/api/v1/namespaces/default/configmaps";

    let selected = format!("{maps}?labelSelector=app%3Da&fieldSelector=metadata.name%3Dm");
    jane.get(&selected).await.expect_success();
    let listed = hook.0.received();
    let listed = listed
        .iter()
        .rfind(|r| describe(&r.review["spec"]) == "jane list configmaps");
    let listed = listed.unwrap();
    assert_eq!(listed.path, "/authorize?timeout=3s");
    assert_eq!(listed.authorization, "Bearer of-the-server");
    assert_eq!(
        listed.review["spec"],
        json!({"user": "jane", "groups": ["dev", "system:authenticated"],
            "extra": listed.review["spec"]["extra"],
            "resourceAttributes": {"namespace": "default", "verb": "list", "version": "v1",
                "resource": "configmaps", "name": "m",
                "fieldSelector": {"requirements":
                    [{"key": "metadata.name", "operator": "In", "values": ["m"]}]},
                "labelSelector": {"requirements":
                    [{"key": "app", "operator": "In", "values": ["a"]}]}}})
    );
    jane.get("/metrics").await.expect_success();
    jane.get(&format!("{maps}?watch=true&timeoutSeconds=1"))
        .await
        .expect_success();
    // No opinion of the webhook, and a permission of RBAC.
    jane.get(&format!("{maps}/kube-root-ca.crt"))
        .await
        .expect_status(404);
    let denied = jane.delete(&format!("{maps}/m")).await.expect_status(403);
    assert!(
        denied.text().contains("denied by the hook"),
        "{}",
        denied.text()
    );
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_status(403);

    // A connection that begins with GET needs `create` as well.
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=id";
    jane.get(exec).await.expect_status(403);
    assert_eq!(hook.count("jane get pods/exec"), 1);
    assert_eq!(hook.count("jane create pods/exec"), 1);

    plane.admin().get(maps).await.expect_success();
    let metrics = plane.admin().get("/metrics").await.text();
    for line in [
        r#"apiserver_authorization_decisions_total{type="Webhook",name="hook",decision="denied"} 1"#,
        r#"apiserver_authorization_decisions_total{type="RBAC",name="rbac",decision="allowed"}"#,
        r#"apiserver_authorization_webhook_evaluations_total{name="hook",result="success"}"#,
        "apiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    assert!(
        hook.asked()
            .iter()
            .all(|asked| !asked.starts_with("kubernetes-admin"))
    );
}

/// Reviews of access ask the webhook, for all users that they may name.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_reviews_and_impersonation() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(
        &[
            "jane get secrets",
            "joe get secrets",
            "jane impersonate users",
            "joe list configmaps",
            "jane create localsubjectaccessreviews",
        ],
        &["jane list secrets"],
    )
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    let jane = plane.user("jane", None);
    let secrets = |verb: &str| json!({"namespace": "default", "verb": verb, "resource": "secrets"});
    let status = review_self(&jane, secrets("get")).await;
    assert_eq!(status, json!({"allowed": true}));
    let status = review_self(&jane, secrets("list")).await;
    let denied = json!({"allowed": false, "denied": true, "reason": "denied by the hook"});
    assert_eq!(status, denied);
    let status = review_self(&jane, secrets("watch")).await;
    assert_eq!(status, json!({"allowed": false}));

    let spec = json!({"user": "joe", "resourceAttributes": secrets("get")});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let path = format!("{REVIEWS}/subjectaccessreviews");
    assert_eq!(
        status_of(plane.admin().post(&path, &review).await)["allowed"],
        true
    );
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": "default"}, "spec": spec});
    let path = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(status_of(jane.post(&path, &review).await)["allowed"], true);

    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"}});
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let status = status_of(jane.post(&path, &review).await);
    assert_eq!(status["incomplete"], true);
    let error = "webhook authorizer does not support user rule resolution";
    assert_eq!(status["evaluationError"], error);

    let maps = "/api/v1/namespaces/default/configmaps";
    let as_joe = jane.clone().with_header("impersonate-user", "joe");
    as_joe.get(maps).await.expect_success();
    let in_group = as_joe.with_header("impersonate-group", "admins");
    in_group.get(maps).await.expect_status(403);
    jane.get(maps).await.expect_status(403);
}

/// The checks of admission ask the webhook: escalation by RBAC writes, approvals of certificates, and
/// expressions of policies.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_the_checks_of_admission() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(|spec| {
        // Only the special verbs are decided: RBAC grants the writes.
        let verb = spec["resourceAttributes"]["verb"]
            .as_str()
            .unwrap_or_default();
        let is_jane = spec["user"] == "jane";
        json!({"allowed": is_jane && ["escalate", "bind", "approve", "publish"].contains(&verb)})
    })
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    for user in ["jane", "joe"] {
        let rules = json!([
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]},
            {"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["update"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        ]);
        plane.grant(user, "", rules).await;
    }
    let (jane, joe) = (plane.user("jane", None), plane.user("joe", None));
    let group = RBAC;
    let base = format!("/apis/{group}/v1/namespaces/default");
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "x"}]});
    joe.post(&format!("{base}/roles"), &role)
        .await
        .expect_status(403);
    jane.post(&format!("{base}/roles"), &role)
        .await
        .expect_success();
    joe.post(&format!("{base}/rolebindings"), &binding)
        .await
        .expect_status(403);
    jane.post(&format!("{base}/rolebindings"), &binding)
        .await
        .expect_success();
    assert!(hook.count("joe escalate roles") > 0 && hook.count("joe bind roles") > 0);

    check_approval(&plane, &jane, &joe).await;
    check_policy(&plane, &jane, &joe).await;
    // Asked once for each user: the decision is kept, and the expression is evaluated again.
    assert_eq!(hook.count("joe publish configmaps"), 1);
}

async fn check_approval(plane: &ControlPlane, jane: &Caller, joe: &Caller) {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut request = json!({"apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": STANDARD.encode(SIGNING_REQUEST)}});
    let created = plane.admin().post(path, &request).await.expect_success();
    request["metadata"] = created.json()["metadata"].clone();
    request["status"] = json!({"conditions": [{"type": "Approved", "status": "True",
        "reason": "Test", "message": ""}]});
    let path = format!("{path}/c/approval");
    joe.put(&path, &request).await.expect_status(403);
    jane.put(&path, &request).await.expect_success();
}

async fn check_policy(plane: &ControlPlane, jane: &Caller, joe: &Caller) {
    let group = "admissionregistration.k8s.io";
    let policy = json!({"apiVersion": format!("{group}/v1"), "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "publish"}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "authorizer.group('').resource('configmaps')\
                .namespace('default').check('publish').allowed()"}]}});
    let binding = json!({"apiVersion": format!("{group}/v1"),
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "publish"},
        "spec": {"policyName": "publish", "validationActions": ["Deny"]}});
    for (plural, object) in [
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ] {
        let path = format!("/apis/{group}/v1/{plural}");
        plane.admin().post(&path, &object).await.expect_success();
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    // The policy is enforced when the caches know it.
    let begun = Instant::now();
    for number in 0.. {
        let reply = joe.post(maps, &config_map(&format!("joe-{number}"))).await;
        if reply.status == 422 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
    }
    jane.post(maps, &config_map("jane")).await.expect_success();
    check_match_condition(plane, jane, joe).await;
}

/// Calls an unreachable admission webhook for users without the right alone.
async fn check_match_condition(plane: &ControlPlane, jane: &Caller, joe: &Caller) {
    let group = "admissionregistration.k8s.io";
    let check = "!authorizer.group('').resource('secrets').check('publish').allowed()";
    let configuration = json!({"apiVersion": format!("{group}/v1"),
        "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "guard"},
        "webhooks": [{"name": "guard.example.com", "sideEffects": "None", "timeoutSeconds": 1,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "matchConditions": [{"name": "may-not", "expression": check}],
            "rules": [{"apiGroups": [RBAC], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["roles"]}]}]});
    let path = format!("/apis/{group}/v1/validatingwebhookconfigurations");
    plane
        .admin()
        .post(&path, &configuration)
        .await
        .expect_success();
    let path = format!("/apis/{}/v1/namespaces/default/roles", RBAC);
    let role = |name: &str| {
        json!({"apiVersion": format!("{}/v1", RBAC), "kind": "Role",
            "metadata": {"name": name}, "rules": []})
    };
    let begun = Instant::now();
    for number in 0.. {
        let reply = joe.post(&path, &role(&format!("joe-{number}"))).await;
        if reply.status == 500 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", reply.text());
    }
    jane.post(&path, &role("jane")).await.expect_success();
}

/// A webhook that fails is an error with the policy Deny, and skipped with NoOpinion. Its address
/// does not reach the client.
#[tokio::test(flavor = "multi_thread")]
async fn failed_webhook_never_allows_more_than_the_others() {
    for policy in ["Deny", "NoOpinion"] {
        let folder = tempfile::tempdir().unwrap();
        let server = WebhookServer::start(&[], |_, _| {
            WebhookReply::json(&json!({})).after(Duration::from_secs(20))
        });
        let hook = Hook(server.await);
        let more = json!({"failurePolicy": policy, "timeout": "200ms",
            "matchConditions": [{"expression": "request.user.startsWith('j')"}]});
        let plane = start_with(&hook, folder.path(), &more).await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        plane.grant("mary", "default", rules).await;
        // The match condition excludes this user.
        plane.user("mary", None).get(maps).await.expect_success();
        assert!(hook.0.received().is_empty());
        let group = RBAC;
        let subject = json!([{"op": "add", "path": "/subjects/-",
            "value": {"apiGroup": group, "kind": "User", "name": "jane"}}]);
        let path = format!("/apis/{group}/v1/namespaces/default/rolebindings/test-mary");
        plane
            .admin()
            .json_patch(&path, &subject)
            .await
            .expect_success();
        let jane = plane.user("jane", None);
        if policy == "Deny" {
            let reply = jane.get(maps).await.expect_status(500);
            assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
        } else {
            let begun = Instant::now();
            while jane.get(maps).await.status != 200 {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "RBAC does not allow the request"
                );
            }
            // Without another permission, the failure is the response.
            jane.get("/api/v1/nodes").await.expect_status(500);
            let status = review_self(&jane, json!({"verb": "get", "resource": "nodes"})).await;
            assert_eq!(status["allowed"], false);
            assert!(status["evaluationError"].is_string(), "{status}");
            let metrics = plane.admin().get("/metrics").await.text();
            let open = "webhook_evaluations_fail_open_total{name=\"hook\",result=\"timeout\"}";
            assert!(metrics.contains(open));
        }
    }
}

/// A changed file is used without a restart. One that can't be used, or that drops an authorizer of
/// the start, changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn changed_configuration_is_used_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authorization.json");
    let hook = Hook::with_lists(&["jane list secrets"], &[]).await;
    let kubeconfig = hook.kubeconfig(folder.path());
    write_config(&config, &configuration(&[]));
    let plane = start_plane(&config).await;
    let jane = plane.user("jane", None);
    let secrets = "/api/v1/namespaces/default/secrets";
    jane.get(secrets).await.expect_status(403);

    let with_hook = configuration(&[webhook(&kubeconfig, &json!({"unauthorizedTTL": "1ms"}))]);
    write_config(&config, &with_hook);
    wait_for(&plane, "success\"", 1).await;
    jane.get(secrets).await.expect_success();

    let mut broken = with_hook.clone();
    broken["authorizers"][0]["webhook"]["timeout"] = "31s".into();
    let mut dropped = with_hook.clone();
    dropped["authorizers"].as_array_mut().unwrap().pop();
    let mut allowing = with_hook.clone();
    let all = json!({"type": "AlwaysAllow", "name": "alwaysallow"});
    allowing["authorizers"].as_array_mut().unwrap().push(all);
    for (failures, unusable) in [broken, dropped, allowing].iter().enumerate() {
        write_config(&config, unusable);
        wait_for(&plane, "failure\"", failures + 1).await;
        jane.get(secrets).await.expect_success();
        jane.get("/api/v1/nodes").await.expect_status(403);
    }
    write_config(&config, &configuration(&[]));
    wait_for(&plane, "success\"", 2).await;
    jane.get(secrets).await.expect_status(403);
}

/// Waits until the server has reloaded its configuration so many times with this result.
async fn wait_for(plane: &ControlPlane, status: &str, count: usize) {
    let name = "apiserver_authorization_config_controller_automatic_reloads_total";
    let begun = Instant::now();
    loop {
        let metrics = plane.admin().get("/metrics").await.text();
        let is_due = |line: &str| {
            line.starts_with(name) && line.contains(status) && line.ends_with(&format!(" {count}"))
        };
        if metrics.lines().any(is_due) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the change was not noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A webhook that is this API server asks about its own requests, without end. The requests end, and
/// others are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_behind_the_server_itself_does_not_block_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("authorization.json");
    write_config(&config, &configuration(&[]));
    let plane = start_plane(&config).await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hook"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    plane
        .admin()
        .post(accounts, &account)
        .await
        .expect_success();
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    let issued = plane
        .admin()
        .post(&format!("{accounts}/hook/token"), &request)
        .await;
    let token = issued.expect_success().json()["status"]["token"].clone();
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    plane.grant("jane", "default", rules).await;
    let cluster = json!({"server": format!("https://{}{REVIEWS}/subjectaccessreviews", plane.api_address()),
        "certificate-authority": plane.certificate("ca")});
    let kubeconfig = write_kubeconfig(folder.path(), cluster, json!({"token": token}));
    let more = json!({"failurePolicy": "NoOpinion", "timeout": "2s"});
    write_config(&config, &configuration(&[webhook(&kubeconfig, &more)]));
    wait_for(&plane, "success\"", 1).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let jane = plane.user("jane", None);
    let begun = Instant::now();
    let (asked, other) = tokio::join!(jane.get(maps), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = Instant::now();
        plane.admin().get(maps).await.expect_success();
        begun.elapsed()
    });
    asked.expect_success();
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert!(other < Duration::from_secs(5), "{other:?}");
    plane.admin().get(maps).await.expect_success();
}

/// The flags describe one webhook too, with the beta version of the review, and are refused beside a
/// file.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_of_the_flags_is_asked_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(&["jane list secrets"], &[]).await;
    let kubeconfig = hook.kubeconfig(folder.path());
    let file = format!(
        "--authorization-webhook-config-file={}",
        kubeconfig.display()
    );
    let flags = ["--authorization-mode=Node,RBAC,Webhook", &file];
    let plane = ControlPlane::start_with_flags(&flags).await;
    let jane = plane.user("jane", Some("dev"));
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_success();
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_success();
    // Discovery is allowed by RBAC, before the webhook.
    jane.get("/api").await.expect_success();
    assert_eq!(hook.asked(), ["jane list secrets"]);
    let review = &hook.0.received()[0].review;
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        review["spec"]["group"],
        json!(["dev", "system:authenticated"])
    );

    let config = folder.path().join("authorization.json");
    write_config(&config, &configuration(&[]));
    let both = Options {
        api_server: vec![
            format!("--authorization-config={}", config.display()),
            file.clone(),
        ],
        ..Options::default()
    };
    let error = ControlPlane::try_start(&both).await.err();
    assert!(error.is_some(), "a file and flags together are refused");
}

/// The policies of ABAC allow what they name, and a file with a misspelt field stops the start.
#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_file_allow_what_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.jsonl");
    let policy = |spec: Value| {
        json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
            "spec": spec})
        .to_string()
    };
    let reader = json!({"user": "jane", "namespace": "default", "resource": "configmaps",
        "readonly": true});
    std::fs::write(&path, policy(reader)).unwrap();
    let file = format!("--authorization-policy-file={}", path.display());
    let mode = "--authorization-mode=Node,RBAC,ABAC";
    let plane = ControlPlane::start_with_flags(&[mode, &file]).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let jane = plane.user("jane", None);
    jane.get(maps).await.expect_success();
    jane.post(maps, &config_map("m")).await.expect_status(403);
    jane.get("/api/v1/configmaps").await.expect_status(403);
    plane.user("joe", None).get(maps).await.expect_status(403);

    let misspelt = json!({"user": "jane", "namespace": "*", "resource": "*", "readOnly": true});
    std::fs::write(&path, policy(misspelt)).unwrap();
    let options = Options {
        api_server: vec![mode.to_owned(), file],
        ..Options::default()
    };
    let error = ControlPlane::try_start(&options).await.err();
    assert!(error.is_some(), "the misspelt field is ignored");
}
