//! Validating admission policies.

use integration_tests::{Components, ReplyExt, Test, config_map, wait_for};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Returns a policy for writes of `resources` that share the test's namespace.
pub(crate) fn policy(test: &Test, resources: &[&str], fields: Value) -> Value {
    let mut spec = json!({"failurePolicy": "Fail", "matchConstraints": {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": test.namespace}},
        "resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": resources}]}});
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": test.name("policy")}, "spec": spec})
}

/// Creates a policy with a binding and waits until both are effective.
pub(crate) async fn enforce(test: &Test, mut policy: Value, binding: Value) {
    let name = test.name("policy");
    // The marker is denied by a validation of its own.
    let marker = json!({"expression": "object == null || !has(object.metadata.labels) || \
                                       !('marker' in object.metadata.labels)", "message": "marker"});
    if let Some(validations) = policy["spec"]["validations"].as_array_mut() {
        validations.insert(0, marker);
    }
    test.create(POLICIES, &policy).await;
    let mut spec = json!({"policyName": name, "validationActions": ["Deny"]});
    for (name, value) in binding.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    let warns = spec["validationActions"] == json!(["Warn"]);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": test.name("binding")}, "spec": spec});
    test.create(BINDINGS, &binding).await;
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    let mut object = config_map("marker");
    object["metadata"]["labels"] = json!({"marker": "true"});
    wait_for("the policy is effective", async || {
        let reply = test.admin.post(&path, &object).await;
        reply.status != 201 || (warns && !reply.warnings().is_empty())
    })
    .await;
}

pub(crate) fn denied(test: &Test, resource: &str, name: &str, why: &str) -> String {
    format!(
        "{resource} \"{name}\" is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}' \
         denied request: {why}",
        test.name("policy"),
        test.name("binding")
    )
}

#[tokio::test]
async fn denial_reaches_the_client_for_each_write() {
    let test = start().await;
    let fields = json!({
        "variables": [{"name": "level", "expression": "object == null ? '' : object.data.?level.orValue('')"}],
        "validations": [
            {"expression": "variables.level != 'bad'", "messageExpression": "'level ' + variables.level"},
            {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'",
             "message": "kept", "reason": "Forbidden"}]});
    enforce(&test, policy(&test, &["configmaps"], fields), json!({})).await;
    let path = test.core("configmaps");
    let mut bad = config_map("m");
    bad["data"]["level"] = json!("bad");
    let message = denied(&test, "configmaps", "m", "level bad");
    let reply = test.admin.post(&path, &bad).await;
    reply.expect_failure(422, "Invalid", &message);
    let reply = test.admin.post(&format!("{path}?dryRun=All"), &bad).await;
    reply.expect_failure(422, "Invalid", &message);
    test.create(&path, &config_map("m")).await;
    let change = json!({"data": {"level": "bad"}});
    let reply = test.admin.merge_patch(&format!("{path}/m"), &change).await;
    reply.expect_failure(422, "Invalid", &message);
    let change = json!({"data": {"level": "good"}});
    let reply = test.admin.merge_patch(&format!("{path}/m"), &change).await;
    reply.expect_status(200);
    test.create(&path, &config_map("kept")).await;
    let reply = test.admin.delete(&format!("{path}/kept")).await;
    reply.expect_failure(
        403,
        "Forbidden",
        &denied(&test, "configmaps", "kept", "kept"),
    );
    test.admin
        .delete(&format!("{path}/m"))
        .await
        .expect_status(200);
}

#[tokio::test]
async fn warning_lets_the_request_through() {
    let test = start().await;
    let fields =
        json!({"validations": [{"expression": "object.metadata.name != 'm'", "message": "no"}]});
    let policy = policy(&test, &["configmaps"], fields);
    enforce(&test, policy, json!({"validationActions": ["Warn"]})).await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("m"))
        .await;
    assert_eq!(reply.status, 201);
    let warning = format!(
        "299 - \"Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': no\"",
        test.name("policy"),
        test.name("binding")
    );
    assert_eq!(reply.warnings(), [warning]);
}

fn secret(name: &str, kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind})
}

fn param_policy(test: &Test) -> Value {
    let fields = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "object.?type.orValue('') != params.data.forbidden",
         "messageExpression": "params.kind + ' ' + params.metadata.name + ' forbids ' + object.type"}]});
    policy(test, &["configmaps", "secrets"], fields)
}

#[tokio::test]
async fn parameters_are_read_from_the_namespace_of_the_request() {
    let test = start().await;
    let mut limits = config_map("limits");
    limits["data"]["forbidden"] = json!("example.com/a");
    test.create(&test.core("configmaps"), &limits).await;
    let reference = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    enforce(&test, param_policy(&test), json!({"paramRef": reference})).await;
    let path = test.core("secrets");
    let reply = test.admin.post(&path, &secret("s", "example.com/a")).await;
    let why = "ConfigMap limits forbids example.com/a";
    reply.expect_failure(422, "Invalid", &denied(&test, "secrets", "s", why));
    test.create(&path, &secret("s", "example.com/b")).await;
}

#[tokio::test]
async fn missing_parameter_denies_if_the_binding_says_so() {
    let test = start().await;
    let reference = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    enforce(&test, param_policy(&test), json!({"paramRef": reference})).await;
    let why = "failed to configure binding: no params found for policy binding with `Deny` \
               parameterNotFoundAction";
    let reply = test
        .admin
        .post(&test.core("secrets"), &secret("s", "example.com/a"))
        .await;
    reply.expect_failure(422, "Invalid", &denied(&test, "secrets", "s", why));
}

#[tokio::test]
async fn subresources_and_connections_are_matched_by_their_own_rules() {
    let test = start().await;
    let fields = json!({"validations": [
        {"expression": "request.subResource != 'scale' || object.spec.replicas <= 3", "message": "scale"}]});
    let policy = policy(&test, &["configmaps", "deployments/scale"], fields);
    enforce(&test, policy, json!({})).await;
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", test.namespace);
    test.create(&deployments, &integration_tests::deployment("d", 5))
        .await;
    let path = format!("{deployments}/d/scale");
    let reply = test
        .admin
        .merge_patch(&path, &json!({"spec": {"replicas": 4}}))
        .await;
    reply.expect_failure(
        422,
        "Invalid",
        &denied(&test, "deployments.apps", "d", "scale"),
    );
    let reply = test
        .admin
        .merge_patch(&path, &json!({"spec": {"replicas": 2}}))
        .await;
    reply.expect_status(200);
}

#[tokio::test]
async fn policies_themselves_are_exempt_and_checked_when_written() {
    let test = start().await;
    for (fields, expect) in [
        (
            json!({"validations": [{"expression": "object.spec ="}]}),
            "compilation failed: ERROR: <input>:1:",
        ),
        (
            json!({"validations": [{"expression": "1 + 1"}]}),
            "must evaluate to bool but got int",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "1"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
        ),
        (
            json!({"variables": [{"name": "a", "expression": "b"}], "validations": [{"expression": "true"}]}),
            "spec.variables[0].expression: Invalid value: \"b\": compilation failed: ERROR: <input>:1:1: \
             undeclared reference to 'b'",
        ),
        (
            json!({"validations": [{"expression": "params.x == 1"}]}),
            "undeclared reference to 'params'",
        ),
    ] {
        let reply = test
            .admin
            .post(POLICIES, &policy(&test, &["pods"], fields))
            .await;
        let status = reply.expect_reason(422, "Invalid");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(expect), "{message}");
    }
    let fields = json!({"validations": [{"expression": "false"}]});
    let mut all = policy(
        &test,
        &["validatingadmissionpolicies", "configmaps"],
        fields,
    );
    all["spec"]["matchConstraints"]["objectSelector"] = json!({"matchLabels": {"marker": "true"}});
    enforce(&test, all, json!({})).await;
    let path = format!("{POLICIES}/{}", test.name("policy"));
    let change = json!({"metadata": {"labels": {"marker": "true"}}});
    test.admin
        .merge_patch(&path, &change)
        .await
        .expect_status(200);
    test.admin.delete(&path).await.expect_status(200);
    let path = format!("{BINDINGS}/{}", test.name("binding"));
    test.admin.delete(&path).await.expect_status(200);
}

#[tokio::test]
async fn authorizer_knows_the_user_of_the_request() {
    let test = start().await;
    let fields = json!({"validations": [{"message": "not allowed",
        "expression": "object.data.?verb.orValue('') == '' || \
                       authorizer.group('').resource('pods').namespace(request.namespace).check(object.data.verb).allowed() && \
                       !authorizer.serviceAccount('none', 'none').group('').resource('pods').check('get').allowed()"}]});
    enforce(&test, policy(&test, &["configmaps"], fields), json!({})).await;
    let mut map = config_map("m");
    map["data"]["verb"] = json!("get");
    test.create(&test.core("configmaps"), &map).await;
}
