//! Checks beside the authorization of the request itself.

use crate::hook::{Hook, PATIENCE, RBAC, config_map, start_with};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::time::Instant;
use testkit_control_plane::{Caller, ControlPlane};

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

/// The checks of admission call the webhook: escalation by RBAC writes, approvals and signing of
/// certificates, and expressions of policies.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_the_checks_of_admission() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(|spec| {
        // Only the special verbs are decided: RBAC grants the writes.
        let verb = spec["resourceAttributes"]["verb"]
            .as_str()
            .unwrap_or_default();
        let is_jane = spec["user"] == "jane";
        let verbs = ["escalate", "bind", "approve", "sign", "publish"];
        json!({"allowed": is_jane && verbs.contains(&verb)})
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
    check_signing(&plane, &jane, &joe).await;
    assert!(hook.count("joe sign signers") > 0);
    check_policy(&plane, &jane, &joe).await;
    // Called once for each user: the decision is reused, and the expression is evaluated again.
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

/// A signer may end a request of its signer, with a certificate or without.
async fn check_signing(plane: &ControlPlane, jane: &Caller, joe: &Caller) {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest", "metadata": {"name": "s"},
        "spec": {"signerName": "example.com/signer", "usages": ["client auth"],
            "request": STANDARD.encode(SIGNING_REQUEST)}});
    let created = plane.admin().post(path, &request).await.expect_success();
    let mut request = created.json();
    request["status"] = json!({"conditions": [{"type": "Failed", "status": "True",
        "reason": "Test", "message": ""}]});
    let path = format!("{path}/s/status");
    joe.put(&path, &request).await.expect_status(403);
    jane.put(&path, &request).await.expect_success();
}

/// A node gets tokens for an audience that no volume of the pod names if the webhook allows that
/// one for the account.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_the_audiences_of_tokens_for_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(|spec| {
        let target = &spec["resourceAttributes"];
        let is_allowed = target["verb"] == "request-serviceaccounts-token-audience"
            && target["resource"] == "vault.example.com"
            && target["namespace"] == "default"
            && target["name"] == "default"
            && spec["user"] == "system:node:one";
        json!({"allowed": is_allowed})
    })
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    let admin = plane.admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}});
    admin.post("/api/v1/nodes", &node).await.expect_success();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "example.com/c:1"}]}});
    let namespace = "/api/v1/namespaces/default";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default"}});
    let accounts = format!("{namespace}/serviceaccounts");
    admin.post(&accounts, &account).await.expect_success();
    let reply = admin.post(&format!("{namespace}/pods"), &pod).await;
    let pod = reply.expect_success().json();
    let one = plane.kubelet("one");
    let path = format!("{accounts}/default/token");
    let request = |audience: &str| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [audience], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1",
                "name": "p", "uid": pod["metadata"]["uid"]}}})
    };
    let reply = one.post(&path, &request("vault.example.com")).await;
    let status = reply.expect_success().json()["status"].clone();
    assert!(status["token"].is_string());
    one.post(&path, &request("other.example.com"))
        .await
        .expect_status(403);
    let verb = "system:node:one request-serviceaccounts-token-audience";
    for audience in ["vault.example.com", "other.example.com"] {
        assert_eq!(hook.count(&format!("{verb} {audience}")), 1, "{audience}");
    }
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
