//! CustomResourceDefinitions, and the resources that they define.

mod conversion;
mod deletion;
mod equivalence;
mod names;
mod openapi;
mod selection;
mod serving;

use integration_tests::{Components, Test, has_condition, wait_for};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Returns the group of a test: other tests use the same cluster.
fn group(test: &Test) -> String {
    format!("{}.example.com", test.namespace)
}

/// Returns a definition with one version and a free schema.
fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

fn path_of(definition: &Value) -> String {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    format!("{DEFINITIONS}/{name}")
}

/// Creates a definition and waits until it is established; returns it.
async fn establish(test: &Test, definition: &Value) -> Value {
    test.create(DEFINITIONS, definition).await;
    test.wait_until(&path_of(definition), "established", |d| {
        has_condition(d, "Established")
    })
    .await
}

/// Returns an instance of `group`'s version v1.
fn instance(group: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"name": name},
        "spec": {"size": 1}})
}

async fn wait_for_status(test: &Test, path: &str, status: u16) {
    wait_for(&format!("{path} answers {status}"), async || {
        test.admin.get(path).await.status == status
    })
    .await;
}
