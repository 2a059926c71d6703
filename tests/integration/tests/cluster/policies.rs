//! Type checking of validating admission policies.

use integration_tests::{Components, Test};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn start() -> Test {
    Test::start(Components::All).await
}

/// Creates a policy without a binding, and returns its path.
async fn create_policy(
    test: &Test,
    name: &str,
    target: (&str, &str),
    validations: Value,
) -> String {
    let name = test.name(name);
    let (group, resource) = target;
    let variables = json!([{"name": "replicas", "expression": "object.spec.replicas"}]);
    let rule = json!({"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"],
        "resources": [resource]});
    let policy = json!({"metadata": {"name": name}, "spec": {"variables": variables,
        "matchConstraints": {"resourceRules": [rule]}, "validations": validations}});
    test.create(POLICIES, &policy).await;
    format!("{POLICIES}/{name}")
}

/// Returns place and text of each warning, once the policy is checked.
async fn wait_for_warnings(test: &Test, path: &str) -> Vec<(String, String)> {
    let checked = test
        .wait_until(path, "checked", |policy| {
            policy["status"]["typeChecking"].is_object()
                && policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
        })
        .await;
    let warnings = checked["status"]["typeChecking"]["expressionWarnings"].as_array();
    let field = |warning: &Value, name: &str| warning[name].as_str().unwrap().to_owned();
    let warnings = warnings.into_iter().flatten();
    warnings
        .map(|warning| (field(warning, "fieldRef"), field(warning, "warning")))
        .collect()
}

fn assert_warnings(found: &[(String, String)], expected: &[(&str, &str)]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((place, text), (expected_place, part)) in found.iter().zip(expected) {
        assert!(place == expected_place && text.contains(part), "{found:?}");
    }
}

#[tokio::test]
async fn policy_is_checked_against_the_types_of_built_in_kinds() {
    let test = start().await;
    let deployments = ("apps", "deployments");
    let validations = json!([{"expression": "object.spec.replicas > 1"},
        {"expression": "object.spec.template.spec.containers.all(c, 'cpu' in c.resources.limits)"},
        {"expression": "object.metadata.creationTimestamp < timestamp('2999-01-01T00:00:00Z')"}]);
    let path = create_policy(&test, "right", deployments, validations).await;
    assert_warnings(&wait_for_warnings(&test, &path).await, &[]);
    let validations = json!([{"expression": "object.spec.replicas > '1'",
            "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"},
        {"expression": "variables.replicas == 'x'"}]);
    let path = create_policy(&test, "confused", deployments, validations).await;
    let expected = [
        (
            "spec.validations[0].expression",
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' \
             applied to '(int, string)'",
        ),
        (
            "spec.validations[0].messageExpression",
            "found no matching overload for '_+_' applied to '(string, int)'",
        ),
        (
            "spec.validations[1].expression",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
    ];
    assert_warnings(&wait_for_warnings(&test, &path).await, &expected);
}

#[tokio::test]
async fn correction_of_a_policy_removes_its_warnings() {
    let test = start().await;
    let validations = json!([{"expression": "object.spec.replica > 1"}]);
    let path = create_policy(&test, "corrected", ("apps", "deployments"), validations).await;
    let expected = [(
        "spec.validations[0].expression",
        "undefined field 'replica'",
    )];
    assert_warnings(&wait_for_warnings(&test, &path).await, &expected);
    let patch = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}});
    let patched = test.admin.merge_patch(&path, &patch).await;
    patched.expect_status(200);
    assert_warnings(&wait_for_warnings(&test, &path).await, &[]);
}

#[tokio::test]
async fn policy_is_checked_against_the_types_of_custom_resources() {
    let test = start().await;
    let group = format!("{}.example.com", test.name("types"));
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let definition = json!({"metadata": {"name": format!("crontabs.{group}")}, "spec": {
        "group": group, "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema":
            {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}});
    test.create(DEFINITIONS, &definition).await;
    let document = format!("/openapi/v3/apis/{group}/v1");
    test.wait_until(&document, "published", |document| {
        document["components"]["schemas"].is_object()
    })
    .await;
    let validations = json!([{"expression": "object.spec.replicas > '1'"},
        {"expression": "object.spec.maxRetries < 10"}, {"expression": "object.spec.replicas > 1"}]);
    let path = create_policy(&test, "custom", (&group, "crontabs"), validations).await;
    let expected = [
        (
            "spec.validations[0].expression",
            "found no matching overload for '_>_' applied to '(int, string)'",
        ),
        (
            "spec.validations[1].expression",
            "undefined field 'maxRetries'",
        ),
    ];
    assert_warnings(&wait_for_warnings(&test, &path).await, &expected);
}
