//! Definitions of custom resources, from their creation to their deletion.

use super::{TestServer, request, soon, start_server};
use serde_json::{Value, json};
use std::time::Duration;
use testkit_etcd::FakeEtcd;

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

/// Returns a definition of `foos` with printer columns of these paths.
fn with_columns(paths: &[&str]) -> Value {
    let columns: Vec<Value> = paths
        .iter()
        .enumerate()
        .map(|(i, path)| json!({"name": format!("C{i}"), "type": "string", "jsonPath": path}))
        .collect();
    let mut definition = definition("foos", "Foo");
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns.into();
    definition
}

impl TestServer {
    async fn list_columns(&self, path: &str) -> Vec<String> {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = request("GET", path).header("accept", accept);
        let table = self.send(request, "").await.json();
        let columns = table["columnDefinitions"].as_array().unwrap();
        let names = columns.iter().map(|column| column["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn unreadable_printer_column_ends_the_table_and_the_resource_is_served() {
    let long = ".a".repeat(2049);
    for path in [".b}{range .c[*]", ".b}{.c", ".b[?(@.c", long.as_str()] {
        let server = start_server(&[]).await;
        let definition = with_columns(&[".spec.a", path, ".spec.z"]);
        server.create_definition(definition).await;
        server.wait_until_established("foos.example.com").await;
        assert_eq!(server.list_columns(FOOS).await, ["Name", "C0"], "{path}");
        let path = format!("{DEFINITIONS}/foos.example.com");
        server.send(request("DELETE", &path), "").await;
        server.wait_for_code(&path, 404).await;
    }
}

#[tokio::test]
async fn update_with_an_unreadable_printer_column_is_in_force() {
    let server = start_server(&[]).await;
    server.create_definition(definition("foos", "Foo")).await;
    let mut changed = server.wait_until_established("foos.example.com").await;
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "a"}});
    assert_eq!(server.write("POST", FOOS, foo).await.code, 201);
    let mut spec = with_columns(&[".b[?(@.c"])["spec"].take();
    spec["versions"][0]["subresources"] = json!({});
    changed["spec"]["versions"] = spec["versions"].take();
    let path = format!("{DEFINITIONS}/foos.example.com");
    let updated = server.write("PUT", &path, changed).await;
    assert_eq!(updated.code, 200, "{}", updated.text());
    server.wait_for_code(&format!("{FOOS}/a/status"), 404).await;
}

#[tokio::test]
async fn stored_definition_that_cannot_be_served_says_so_and_can_be_deleted() {
    let etcd = FakeEtcd::start().await;
    let mut stored = definition("foos", "Foo");
    stored["metadata"] = json!({"name": "foos.example.com", "uid": "u", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z"});
    stored["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".a["}]);
    stored["spec"]["names"]["listKind"] = json!("FooList");
    let accepted = stored["spec"]["names"].clone();
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    stored["status"] = json!({"acceptedNames": accepted, "storedVersions": ["v1"],
        "conditions": [condition("NamesAccepted"), condition("Established")]});
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/foos.example.com";
    etcd.put(key, stored.to_string().as_bytes());
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata":
        {"name": "a", "namespace": "d", "uid": "v", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let instance = "/registry/example.com/foos/d/a";
    etcd.put(instance, foo.to_string().as_bytes());
    let server = super::start_over(etcd, &[]).await;
    let path = format!("{DEFINITIONS}/foos.example.com");
    soon(async {
        while !server.get(&path).await.text().contains("ServingFailed") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(server.get(FOOS).await.code, 404);
    server.send(request("DELETE", &path), "").await;
    server.wait_for_code(&path, 404).await;
    assert_eq!(server.etcd.get(instance), None);
}
