//! Definitions of custom resources, from their creation to their deletion.

use super::{TestServer, request, soon, start_server};
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FOOS: &str = "/apis/example.com/v1/namespaces/d/foos";

fn definition(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

impl TestServer {
    async fn create_definition(&self, definition: Value) {
        let created = self.write("POST", DEFINITIONS, definition).await;
        assert_eq!(created.code, 201, "{}", created.text());
    }

    /// Waits until the path answers with this code.
    async fn wait_for_code(&self, path: &str, code: u16) {
        soon(async {
            while self.get(path).await.code != code {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    async fn wait_until_established(&self, name: &str) -> Value {
        soon(async {
            loop {
                let object = self.get(&format!("{DEFINITIONS}/{name}")).await.json();
                let conditions = object["status"]["conditions"].as_array();
                if conditions.is_some_and(|all| {
                    all.iter()
                        .any(|c| c["type"] == "Established" && c["status"] == "True")
                }) {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn definition_is_served_from_its_creation_to_its_deletion() {
    let server = start_server(&[]).await;
    server.create_definition(definition("foos", "Foo")).await;
    server.wait_until_established("foos.example.com").await;
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}});
    assert_eq!(server.write("POST", FOOS, foo).await.code, 201);
    let path = format!("{FOOS}/a/status");
    assert_eq!(server.get(&path).await.code, 200, "the subresource exists");
    let path = format!("{DEFINITIONS}/foos.example.com");
    let deleted = server.send(request("DELETE", &path), "").await;
    assert_eq!(deleted.code, 200);
    server.wait_for_code(&path, 404).await;
    server.wait_for_code(FOOS, 404).await;
    assert_eq!(server.etcd.get("/registry/example.com/foos/d/a"), None);
}

#[tokio::test]
async fn second_server_serves_what_the_first_has_stored() {
    let first = start_server(&[]).await;
    for i in 0..20 {
        let one = definition(&format!("foo{i}s"), &format!("Foo{i}"));
        first.create_definition(one).await;
    }
    first.wait_until_established("foo19s.example.com").await;
    for i in 0..20 {
        let name = format!("foo{i}s.example.com");
        first.wait_until_established(&name).await;
    }
    let second = super::start_over(first.etcd, &[]).await;
    soon(async {
        while !second.server.definitions.is_synced() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for i in 0..20 {
        let path = format!("/apis/example.com/v1/foo{i}s");
        assert_eq!(second.get(&path).await.code, 200, "{path}");
    }
}
