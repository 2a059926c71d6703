//! Mutating admission policies.

use integration_tests::{Components, Test, config_map, wait_for};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

pub(crate) fn apply(source: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": source}})
}

pub(crate) fn patch(source: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": source}})
}

/// Creates a policy for writes in the test's namespace with a binding, and waits until a config map
/// shows that it is effective.
pub(crate) async fn enforce(test: &Test, group: &str, resource: &str, mutations: Value) {
    enforce_versions(test, group, "*", resource, mutations).await;
}

/// Does the same for one version of the resource.
pub(crate) async fn enforce_versions(
    test: &Test,
    group: &str,
    version: &str,
    resource: &str,
    mutations: Value,
) {
    let name = test.name(resource);
    let rule = |group: &str, version: &str, resource: &str| {
        json!({"operations": ["CREATE", "UPDATE"], "apiGroups": [group],
            "apiVersions": [version], "resources": [resource]})
    };
    let space = json!({"matchLabels": {"kubernetes.io/metadata.name": test.namespace}});
    let marker = "Object{metadata: Object.metadata{annotations: {'marker': 'seen'}}}";
    for (name, rule, mutations) in [
        (name.clone(), rule(group, version, resource), mutations),
        (
            format!("{name}-z"),
            rule("", "v1", "configmaps"),
            json!([apply(marker)]),
        ),
    ] {
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never", "mutations": mutations,
                "matchConstraints": {"namespaceSelector": space, "resourceRules": [rule]}}});
        let reply = test.admin.post(POLICIES, &policy).await.expect_status(201);
        assert!(reply.warnings().is_empty(), "{:?}", reply.warnings());
        let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name}});
        test.create(BINDINGS, &binding).await;
    }
    let path = format!("{}?dryRun=All", test.core("configmaps"));
    wait_for("the policies are effective", async || {
        let reply = test.admin.post(&path, &config_map("marker")).await;
        reply.json()["metadata"]["annotations"]["marker"] == json!("seen")
    })
    .await;
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// The facts of upstream's specifications "should mutate a Deployment" and "should mutate a
/// Deployment with annotations".
#[tokio::test]
async fn deployment_is_mutated() {
    let test = Test::start(Components::ApiServer).await;
    let mutations = json!([
        apply("Object{spec: Object.spec{replicas: 1337}}"),
        apply("Object{metadata: Object.metadata{annotations: {'mutated-by': 'admission-policy'}}}"),
        apply(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
                initContainers: [Object.spec.template.spec.initContainers{name: 'mesh', image: 'm'}]}}}}"
        ),
        patch(
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'from': object.metadata.name}},
              JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'),
                  value: 'y'}]"
        )
    ]);
    enforce(&test, "apps", "deployments", mutations).await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", test.namespace);
    let reply = test
        .admin
        .post(&format!("{path}?dryRun=All"), &deployment())
        .await
        .expect_status(201);
    assert_eq!(reply.json()["spec"]["replicas"], json!(1337));
    let created = test.create(&path, &deployment()).await;
    assert_eq!(created["spec"]["replicas"], json!(1337));
    let metadata = &created["metadata"];
    assert_eq!(
        metadata["annotations"]["mutated-by"],
        json!("admission-policy")
    );
    assert_eq!(
        metadata["labels"],
        json!({"from": "d", "example.com/x": "y"})
    );
    let spec = &created["spec"]["template"]["spec"];
    assert_eq!(spec["containers"][0]["name"], json!("c"));
    // The new container has the defaults of the API.
    let added = &spec["initContainers"][0];
    assert_eq!(added["name"], json!("mesh"));
    assert_eq!(added["imagePullPolicy"], json!("Always"));
    let change = json!({"spec": {"replicas": 2}});
    let reply = test.admin.merge_patch(&format!("{path}/d"), &change).await;
    assert_eq!(reply.json()["spec"]["replicas"], json!(1337));
}

#[tokio::test]
async fn mutation_that_upstream_rejects_denies_the_request() {
    let test = Test::start(Components::ApiServer).await;
    let container = "Object.spec.template.spec.containers{name: 'c', args: ['x']}";
    let mutations = json!([
        apply(&format!(
            "Object{{spec: Object.spec{{template: Object.spec.template{{
                spec: Object.spec.template.spec{{containers: [{container}]}}}}}}}}"
        )),
        apply("Object{spec: Object.spec{unknown: 1}}"),
        patch("[JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]"),
        // Valid by the schema, but not by the rules of the kind.
        apply("Object{spec: Object.spec{replicas: -1}}")
    ]);
    enforce(&test, "apps", "deployments", mutations).await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", test.namespace);
    let reply = test.admin.post(&path, &deployment()).await;
    let name = test.name("deployments");
    let start = format!("policy '{name}' with binding '{name}' denied request: ");
    let causes = reply.json()["details"]["causes"].clone();
    for (cause, expect) in causes.as_array().unwrap_or(&Vec::new()).iter().zip([
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or \
         structs: .spec.template.spec.containers[0].args",
        "error applying patch: failed to convert patch object to typed object: .spec.unknown: \
         field not declared in schema",
        "strict decoding error: unknown field \"spec.unknown\"",
    ]) {
        assert_eq!(cause["message"], json!(format!("{start}{expect}")));
    }
    assert_eq!(causes.as_array().map(Vec::len), Some(3), "{causes}");
}

#[tokio::test]
async fn result_is_validated() {
    let test = Test::start(Components::ApiServer).await;
    let mutations = json!([apply("Object{spec: Object.spec{replicas: -1}}")]);
    enforce(&test, "apps", "deployments", mutations).await;
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", test.namespace);
    let reply = test
        .admin
        .post(&path, &deployment())
        .await
        .expect_status(422);
    let message = reply.json()["message"].to_string();
    assert!(message.contains("spec.replicas"), "{message}");
}

#[tokio::test]
async fn custom_resource_is_merged_by_its_schema() {
    let test = Test::start(Components::ApiServer).await;
    let group = format!("{}.example.com", test.namespace);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string", "default": "red"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "atoms": {"type": "array", "items": {"type": "string"}}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": format!("gears.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "gears", "singular": "gear", "kind": "Gear"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    test.create(path, &definition).await;
    let path = format!("/apis/{group}/v1/namespaces/{}/gears", test.namespace);
    wait_for("the kind is served", async || {
        test.admin.get(&path).await.status == 200
    })
    .await;
    let mutations = json!([
        apply("Object{spec: Object.spec{size: object.spec.size + 1, tags: ['b']}}"),
        patch("[JSONPatch{op: 'remove', path: '/spec/gone'}]")
    ]);
    enforce(&test, &group, "gears", mutations).await;
    let gear = |fields: Value| {
        json!({"apiVersion": format!("{group}/v1"), "kind": "Gear",
            "metadata": {"name": "g"}, "spec": fields})
    };
    let reply = test
        .admin
        .post(&path, &gear(json!({"size": 1, "tags": ["a"]})))
        .await;
    let message = reply.json()["message"].to_string();
    assert!(
        reply.status != 201 && message.contains("JSON Patch: "),
        "{message}"
    );
    let policy = format!("{POLICIES}/{}", test.name("gears"));
    let change = json!({"spec": {"mutations": [
        apply("Object{spec: Object.spec{size: object.spec.size + 1, tags: ['b']}}")]}});
    test.admin
        .merge_patch(&policy, &change)
        .await
        .expect_status(200);
    wait_for("the changed policy is effective", async || {
        let path = format!("{path}?dryRun=All");
        test.admin
            .post(&path, &gear(json!({"size": 1})))
            .await
            .status
            == 201
    })
    .await;
    let created = test
        .create(&path, &gear(json!({"size": 1, "tags": ["a"]})))
        .await;
    let expect = json!({"size": 2, "tags": ["a", "b"], "color": "red"});
    assert_eq!(created["spec"], expect);
}
