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
        assert!(begun.elapsed() < Duration::from_secs(30), "never enforced");
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
    assert!(message.contains("running out of cost budget"), "{message}");
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
        assert!(begun.elapsed() < Duration::from_secs(30), "never enforced");
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
