//! OpenAPI documents of custom resources, as clients read them.

use super::{definition, establish, group, path_of, start};
use integration_tests::{Test, wait_for};
use serde_json::{Value, json};
use std::process::Command;

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

fn described(group: &str) -> Value {
    let mut definition = definition(group, "foos", "Foo");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object",
        "description": "Foo does nothing.", "properties": {"spec": {"type": "object", "required": ["size"],
            "properties": {"size": {"type": "integer", "description": "Size in units."}}}}});
    definition
}

/// Returns the URL of the group's document.
async fn find_url(test: &Test, group: &str) -> Option<String> {
    let index = test.read("/openapi/v3").await;
    let entry = &index["paths"][&format!("apis/{group}/v1")]["serverRelativeURL"];
    entry.as_str().map(str::to_owned)
}

#[tokio::test]
async fn documents_follow_the_definition() {
    let test = start().await;
    let group = group(&test);
    assert_eq!(find_url(&test, &group).await, None);
    let definition = establish(&test, &described(&group)).await;
    let first = find_url(&test, &group).await.unwrap();
    let labels: Vec<&str> = group.rsplit('.').collect();
    let name = format!("{}.v1.Foo", labels.join("."));
    let size = |document: &Value| {
        document["components"]["schemas"][&name]["properties"]["spec"]["properties"]["size"].clone()
    };
    let reply = test.admin.get(&first).await.expect_status(200);
    assert_eq!(size(&reply.json())["description"], "Size in units.");
    let tag = reply.headers["etag"].to_str().unwrap().to_owned();
    let again = test
        .admin
        .with_header("if-none-match", &tag)
        .get(&first)
        .await;
    assert_eq!(again.status, 304);
    let protobuf = test.admin.get_as(&first, PROTOBUF).await.expect_status(200);
    assert!(protobuf.body.starts_with(b"\x0a\x053.0.0"));
    let all = test.read("/openapi/v2").await;
    assert_eq!(
        all["definitions"][&name]["description"],
        "Foo does nothing."
    );

    let change = json!([{"op": "replace", "value": "Size in bytes.",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/description"}]);
    let patch = integration_tests::PatchType::Json;
    let path = path_of(&definition);
    test.admin
        .patch(patch, &path, &change)
        .await
        .expect_status(200);
    wait_for("another hash", async || {
        find_url(&test, &group).await.unwrap() != first
    })
    .await;
    // An old URL leads to the present document.
    test.admin.get(&first).await.expect_status(301);
    let second = find_url(&test, &group).await.unwrap();
    assert_eq!(
        size(&test.read(&second).await)["description"],
        "Size in bytes."
    );

    test.admin.delete(&path).await.expect_success();
    wait_for("no document", async || {
        find_url(&test, &group).await.is_none()
    })
    .await;
    test.admin.get(&second).await.expect_status(404);
    let all = test.read("/openapi/v2").await;
    assert!(all["definitions"].get(&name).is_none());
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn kubectl_explains_and_validates_custom_resources() {
    if Command::new("kubectl").arg("help").output().is_err() {
        println!("skipped: there is no kubectl on this machine");
        return;
    }
    let test = start().await;
    let group = group(&test);
    establish(&test, &described(&group)).await;
    let config = test.plane().kubeconfig("admin");
    let cache = config.with_extension("cache");
    let run = async |arguments: &[&str]| {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(&config)
            .arg("--cache-dir")
            .arg(&cache)
            .args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.unwrap().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (done, text) = run(&["explain", &format!("foos.{group}.spec.size")]).await;
    assert!(done && text.contains("Size in units."), "{text}");
    let file = config.with_extension("yaml");
    for (field, expect) in [("size", ""), ("weight", "unknown field \"spec.weight\"")] {
        let object = json!({"apiVersion": format!("{group}/v1"), "kind": "Foo",
            "metadata": {"name": "a"}, "spec": {"size": 1, field: 2}});
        std::fs::write(&file, object.to_string()).unwrap();
        let arguments = [
            "--namespace",
            &test.namespace,
            "create",
            "--validate=strict",
            "-f",
        ];
        let (done, text) = run(&[&arguments[..], &[file.to_str().unwrap()]].concat()).await;
        assert!(
            done == expect.is_empty() && text.contains(expect),
            "{field}: {text}"
        );
    }
}
