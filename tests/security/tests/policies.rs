//! Admission policies: what an expression, or the input of a user, must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Creates a policy with a binding, and waits until it denies the config map `marker`.
async fn enforce(admin: &Caller, name: &str, expression: &str, params: Value) {
    let marker = json!({"expression": "object.metadata.name != 'marker'", "message": "marker"});
    let mut spec = json!({"failurePolicy": "Fail", "validations": [marker, {"expression": expression}],
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
            "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "matchConditions": [{"name": "default", "expression": "request.namespace == 'default'"}]});
    if !params.is_null() {
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "Secret"});
    }
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec});
    let path = format!("{GROUP}/validatingadmissionpolicies");
    admin.post(&path, &policy).await.expect_success();
    let mut spec = json!({"policyName": name, "validationActions": ["Deny"]});
    if !params.is_null() {
        spec["paramRef"] = params;
    }
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": spec});
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    admin.post(&path, &binding).await.expect_success();
    let begun = Instant::now();
    let dry = format!("{MAPS}?dryRun=All");
    while admin
        .post(&dry, &config_map("marker", json!({})))
        .await
        .status
        == 201
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "never enforced");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An expression that nests loops over a large object of a user ends at its limit.
#[tokio::test(flavor = "multi_thread")]
async fn expensive_expression_does_not_stall_the_server() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let cubic =
        "object.data.all(a, object.data.all(b, object.data.all(c, (a + b + c).size() > 0)))";
    enforce(&admin, "cubic", cubic, Value::Null).await;
    let data: Value = (0..3000)
        .map(|i| (format!("key-{i}"), json!("x")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let begun = Instant::now();
    let expensive = config_map("expensive", data);
    let write = || admin.post(MAPS, &expensive);
    let reads = async {
        for _ in 0..10 {
            admin
                .get("/api/v1/namespaces/default")
                .await
                .expect_success();
        }
    };
    let (first, second, third, ()) = tokio::join!(write(), write(), write(), reads);
    for reply in [first, second, third] {
        assert_eq!(reply.status, 422);
        let message = reply.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(message.ends_with("actual cost limit exceeded"), "{message}");
    }
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

/// A user who may create parameters can't multiply the cost of a request with them.
#[tokio::test(flavor = "multi_thread")]
async fn many_parameters_do_not_multiply_the_cost() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    for i in 0..200 {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("param-{i}")}});
        let path = "/api/v1/namespaces/default/secrets";
        admin.post(path, &secret).await.expect_success();
    }
    let square = "object.data.all(a, object.data.all(b, a != '' && b != ''))";
    let params = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    enforce(&admin, "square", square, params).await;
    let data: Value = (0..400)
        .map(|i| (format!("key-{i}"), json!("x")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let begun = Instant::now();
    let reply = admin.post(MAPS, &config_map("many", data)).await;
    assert_eq!(reply.status, 422);
    let message = reply.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // The work that costs do not measure may end first.
    let limits = ["running out of cost budget", "actual cost limit exceeded"];
    assert!(
        limits.iter().any(|limit| message.contains(limit)),
        "{message}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

/// A policy can neither lock its administrators out nor stop the reviews of components.
#[tokio::test(flavor = "multi_thread")]
async fn policy_can_not_lock_out_its_own_removal() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "all"}, "spec": {
            "failurePolicy": "Fail", "validations": [{"expression": "false"}],
            "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"],
                "apiVersions": ["*"], "resources": ["*/*"]}]}}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "all"},
        "spec": {"policyName": "all", "validationActions": ["Deny"]}});
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    admin.post(&policies, &policy).await.expect_success();
    admin.post(&bindings, &binding).await.expect_success();
    let begun = Instant::now();
    let dry = format!("{MAPS}?dryRun=All");
    while admin.post(&dry, &config_map("m", json!({}))).await.status == 201 {
        assert!(begun.elapsed() < Duration::from_secs(60), "never enforced");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    admin.post(path, &review).await.expect_success();
    admin
        .delete(&format!("{bindings}/all"))
        .await
        .expect_success();
    admin
        .delete(&format!("{policies}/all"))
        .await
        .expect_success();
}

/// The messages of a policy hold what its expressions read: its author must not read Secrets by it.
#[tokio::test(flavor = "multi_thread")]
async fn author_of_a_policy_needs_the_right_to_read_its_parameters() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "policies"}, "rules": [
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "policies"}, "subjects": [{"kind": "User", "name": "mallory",
            "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"kind": "ClusterRole",
            "name": "policies", "apiGroup": "rbac.authorization.k8s.io"}});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let path = format!("{rbac}/clusterroles");
    admin.post(&path, &role).await.expect_success();
    let path = format!("{rbac}/clusterrolebindings");
    admin.post(&path, &binding).await.expect_success();
    let mallory = plane.user("mallory", None);
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let begun = Instant::now();
    while mallory.get(&policies).await.status == 403 {
        assert!(begun.elapsed() < Duration::from_secs(60), "never granted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let policy = |name: &str, kind: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": kind},
            "validations": [{"expression": "false", "messageExpression": "string(params.data)"}],
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["configmaps"]}]}}})
    };
    let binding = |name: &str, policy: &str, param: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {
            "policyName": policy, "validationActions": ["Warn"], "paramRef": param}})
    };
    let refused = mallory
        .post(&policies, &policy("spy", "Secret"))
        .await
        .expect_status(422);
    assert!(
        refused.text().contains("must have \\\"get\\\" permission"),
        "{}",
        refused.text()
    );
    let allowed = policy("own", "ConfigMap");
    mallory.post(&policies, &allowed).await.expect_success();
    let path = format!("{policies}/own");
    let change = json!({"spec": {"paramKind": {"kind": "Secret"}}});
    mallory.merge_patch(&path, &change).await.expect_status(422);
    // The administrator's policy reads Secrets; a binding chooses which.
    let path = format!("{GROUP}/validatingadmissionpolicies");
    admin
        .post(&path, &policy("admins", "Secret"))
        .await
        .expect_success();
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let params = |reference: Value| {
        let mut reference = reference;
        reference["parameterNotFoundAction"] = "Allow".into();
        reference
    };
    for (name, policy, reference, expect) in [
        (
            "a",
            "admins",
            json!({"name": "s", "namespace": "kube-system"}),
            422,
        ),
        ("b", "admins", json!({"selector": {}}), 422),
        (
            "c",
            "unknown",
            json!({"name": "s", "namespace": "default"}),
            422,
        ),
        (
            "d",
            "own",
            json!({"name": "m", "namespace": "default"}),
            201,
        ),
        ("e", "own", json!({"selector": {}}), 201),
    ] {
        let object = binding(name, policy, params(reference));
        let reply = mallory.post(&bindings, &object).await;
        assert_eq!(reply.status, expect, "{object}: {}", reply.text());
    }
    let change = json!({"spec": {"policyName": "unknown"}});
    let path = format!("{bindings}/d");
    let reply = mallory.merge_patch(&path, &change).await;
    assert_eq!(reply.status, 422, "{}", reply.text());
}
