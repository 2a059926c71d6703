//! Field selectors of custom resources.

use super::{definition, establish, group, instance, start};
use integration_tests::Test;
use serde_json::{Value, json};

/// Establishes `foos`, whose versions v1 (stored) and v2 have different selectable fields; returns
/// the group.
async fn establish_foos(test: &Test) -> String {
    let group = group(test);
    let mut foos = definition(&group, "foos", "Foo");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "size": {"type": "integer"}}}}});
    let version = |name: &str, path: &str| {
        let mut schema = schema.clone();
        // Versions with one schema must have the same selectable fields.
        schema["description"] = json!(name);
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema}, "selectableFields": [{"jsonPath": path}]})
    };
    foos["spec"]["versions"] = json!([version("v1", ".spec.color"), version("v2", ".spec.size")]);
    establish(test, &foos).await;
    group
}

async fn patch_spec(test: &Test, path: &str, spec: Value) {
    let patch = json!({"spec": spec});
    let reply = test.admin.merge_patch(path, &patch).await;
    reply.expect_status(200);
}

fn pairs(events: &[&str]) -> Vec<(String, String)> {
    let pair = |kind: &&str| ((*kind).to_owned(), "a".to_owned());
    events.iter().map(pair).collect()
}

#[tokio::test]
async fn watch_by_a_declared_field_follows_objects_into_and_out_of_the_selection() {
    let test = start().await;
    let group = establish_foos(&test).await;
    for (version, selector, outside, inside) in [
        (
            "v1",
            "spec.color=blue",
            json!({"color": "red"}),
            json!({"color": "blue"}),
        ),
        ("v2", "spec.size=7", json!({"size": 1}), json!({"size": 7})),
        ("v2", "spec.size!=7", json!({"size": 7}), json!({"size": 1})),
    ] {
        let foos = test.group(&format!("{group}/{version}"), "foos");
        let one = format!("{foos}/a");
        let mut object = instance(&group, "Foo", "a");
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["spec"] = outside.clone();
        test.create(&foos, &object).await;
        let selected = format!("{foos}?fieldSelector={selector}");
        assert!(test.names(&selected).await.is_empty(), "{selector}");
        let now = test.version(&foos).await;
        let query = format!("watch=true&resourceVersion={now}");
        let mut watch = test.admin.watch(&format!("{selected}&{query}")).await;
        patch_spec(&test, &one, inside.clone()).await;
        assert_eq!(test.names(&selected).await, ["a"], "{selector}");
        patch_spec(&test, &one, outside).await;
        patch_spec(&test, &one, inside).await;
        test.admin.delete(&one).await.expect_status(200);
        let expected = pairs(&["ADDED", "DELETED", "ADDED", "DELETED"]);
        assert_eq!(watch.take(4).await, expected, "{selector}");
    }
}

#[tokio::test]
async fn field_that_a_version_does_not_declare_is_no_selector() {
    let test = start().await;
    let group = establish_foos(&test).await;
    for (version, field) in [("v1", "spec.size"), ("v2", "spec.color")] {
        let foos = test.group(&format!("{group}/{version}"), "foos");
        let reply = test
            .admin
            .get(&format!("{foos}?fieldSelector={field}=1"))
            .await;
        reply.expect_status(400);
    }
}
