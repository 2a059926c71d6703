//! Versions that a conversion webhook converts, with a real HTTPS server.

use super::{definition, establish, group, start, wait_for_status};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration_tests::Test;
use serde_json::{Value, json};
use testkit_control_plane::{WebhookReply, WebhookServer};

/// Converts `spec.size` of v1 to `spec.width` of v2 and back; fails for an object with the label
/// `broken`.
pub(super) fn convert(review: &Value) -> WebhookReply {
    let request = &review["request"];
    let target = request["desiredAPIVersion"].clone();
    let (from, to) = match target.as_str() {
        Some(text) if text.ends_with("/v2") => ("size", "width"),
        _ => ("width", "size"),
    };
    let mut objects = request["objects"].as_array().unwrap().clone();
    let fails = objects
        .iter()
        .any(|object| object["metadata"]["labels"]["broken"] == "true");
    for object in &mut objects {
        object["apiVersion"] = target.clone();
        if let Some(value) = object["spec"]
            .as_object_mut()
            .and_then(|spec| spec.remove(from))
        {
            object["spec"][to] = value;
        }
    }
    let result = if fails {
        json!({"status": "Failed", "message": "it is broken"})
    } else {
        json!({"status": "Success"})
    };
    WebhookReply::json(
        &json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": request["uid"], "convertedObjects": objects, "result": result}}),
    )
}

/// Returns the paths of `foos` in v1, the storage version, and in v2.
pub(super) async fn serve_both(test: &Test, server: &WebhookServer) -> [String; 2] {
    let group = group(test);
    let mut both = definition(&group, "foos", "Foo");
    let schema = |field: &str| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
            "properties": {field: {"type": "integer", "maximum": 9}}}}}})
    };
    both["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema("size"),
            "selectableFields": [{"jsonPath": ".spec.size"}]},
        {"name": "v2", "served": true, "storage": false, "schema": schema("width"),
            "selectableFields": [{"jsonPath": ".spec.width"}]}]);
    both["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": server.url("/convert"),
            "caBundle": STANDARD.encode(server.authority())}}});
    establish(test, &both).await;
    let paths = ["v1", "v2"].map(|version| test.group(&format!("{group}/{version}"), "foos"));
    wait_for_status(test, &paths[1], 200).await;
    paths
}

pub(super) fn foo(test: &Test, version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{}/{version}", group(test)), "kind": "Foo",
        "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn object_is_read_and_listed_in_each_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    let created = test
        .create(&v2, &foo(&test, "v2", "a", &json!({"width": 3})))
        .await;
    assert_eq!(created["spec"], json!({"width": 3}));
    test.create(&v1, &foo(&test, "v1", "b", &json!({"size": 4})))
        .await;
    assert_eq!(
        test.read(&format!("{v1}/a")).await["spec"],
        json!({"size": 3})
    );
    let b = test.read(&format!("{v2}/b")).await;
    assert_eq!(b["spec"], json!({"width": 4}));
    assert_eq!(b["apiVersion"], format!("{}/v2", group(&test)));
    for (path, specs) in [
        (&v1, [json!({"size": 3}), json!({"size": 4})]),
        (&v2, [json!({"width": 3}), json!({"width": 4})]),
    ] {
        let items = test.items(path).await;
        let found: Vec<Value> = items.iter().map(|item| item["spec"].clone()).collect();
        assert_eq!(found, specs);
    }
}

#[tokio::test]
async fn watch_has_the_requested_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    test.create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    let mut watch = test.admin.watch(&format!("{v2}?watch=true")).await;
    let (event, object) = watch.event().await;
    assert_eq!((&*event, &object["spec"]), ("ADDED", &json!({"width": 3})));
    let change = json!({"spec": {"size": 5}});
    test.admin
        .merge_patch(&format!("{v1}/a"), &change)
        .await
        .expect_status(200);
    let (event, object) = watch.event().await;
    assert_eq!(
        (&*event, &object["spec"]),
        ("MODIFIED", &json!({"width": 5}))
    );
    test.admin
        .delete(&format!("{v1}/a"))
        .await
        .expect_status(200);
    let (event, object) = watch.event().await;
    assert_eq!(
        (&*event, &object["spec"]),
        ("DELETED", &json!({"width": 5}))
    );
}

#[tokio::test]
async fn fields_of_each_version_select_the_objects_in_that_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    for (name, size) in [("a", 3), ("b", 4), ("c", 3)] {
        test.create(&v1, &foo(&test, "v1", name, &json!({"size": size})))
            .await;
    }
    let selected = [
        format!("{v1}?fieldSelector=spec.size=3"),
        format!("{v2}?fieldSelector=spec.width=3"),
        format!("{v2}?fieldSelector=spec.width!=4"),
    ];
    for list in &selected {
        assert_eq!(test.names(list).await, ["a", "c"], "{list}");
    }
    let list = format!("{v2}?fieldSelector=spec.width=3,metadata.name=c");
    assert_eq!(test.names(&list).await, ["c"]);
    for list in [
        format!("{v1}?fieldSelector=spec.width=3"),
        format!("{v2}?fieldSelector=spec.size=3"),
    ] {
        test.admin.get(&list).await.expect_status(400);
    }
    let deleted = test.admin.delete(&selected[1]).await;
    deleted.expect_status(200);
    assert_eq!(test.names(&v1).await, ["b"]);
}

#[tokio::test]
async fn watch_by_a_field_of_a_converted_version_follows_objects_into_and_out_of_the_selection() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    for (name, size) in [("a", 3), ("b", 4)] {
        test.create(&v1, &foo(&test, "v1", name, &json!({"size": size})))
            .await;
    }
    let selector = "watch=true&fieldSelector=spec.width=3";
    let mut present = test.admin.watch(&format!("{v2}?{selector}")).await;
    let now = test.version(&v1).await;
    let later = format!("{v2}?{selector}&resourceVersion={now}");
    let mut changes = test.admin.watch(&later).await;
    for (name, size) in [("b", 3), ("a", 5), ("a", 6), ("b", 3)] {
        let change = json!({"spec": {"size": size}, "metadata": {"labels": {"n": "x"}}});
        let reply = test
            .admin
            .merge_patch(&format!("{v1}/{name}"), &change)
            .await;
        reply.expect_status(200);
    }
    for name in ["a", "b"] {
        let reply = test.admin.delete(&format!("{v1}/{name}")).await;
        reply.expect_status(200);
    }
    let event = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    let expected = [
        event("ADDED", "b"),
        event("DELETED", "a"),
        event("DELETED", "b"),
    ];
    assert_eq!(changes.take(3).await, expected);
    assert_eq!(present.take(1).await, [event("ADDED", "a")]);
    assert_eq!(present.take(3).await, expected);
}

#[tokio::test]
async fn writes_work_in_the_requested_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    test.create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    let one = format!("{v2}/a");
    let change = json!({"spec": {"width": 4}});
    let patched = test.admin.merge_patch(&one, &change).await;
    let mut object = patched.expect_status(200).json();
    assert_eq!(object["spec"], json!({"width": 4}));
    object["spec"]["width"] = json!(5);
    let updated = test.admin.put(&one, &object).await;
    assert_eq!(
        updated.expect_status(200).json()["spec"],
        json!({"width": 5})
    );
    assert_eq!(
        test.read(&format!("{v1}/a")).await["spec"],
        json!({"size": 5})
    );
    let intent = foo(&test, "v2", "b", &json!({"width": 6}));
    let applied = test
        .admin
        .apply(&format!("{v2}/b"), "m", &intent)
        .await
        .expect_status(201);
    assert_eq!(
        applied.json()["metadata"]["managedFields"][0]["apiVersion"],
        intent["apiVersion"]
    );
    assert_eq!(
        test.read(&format!("{v1}/b")).await["spec"],
        json!({"size": 6})
    );
    let invalid = foo(&test, "v2", "c", &json!({"width": 10}));
    test.admin.post(&v2, &invalid).await.expect_status(422);
    let deleted = test.admin.delete(&one).await;
    assert!(deleted.expect_status(200).json()["status"] == "Success");
    assert_eq!(test.names(&v1).await, ["b"]);
}

/// Makes a version of the definition of `foos` the storage version.
async fn store_in(test: &Test, storage: &str) {
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/foos.{}",
        group(test)
    );
    let mut definition = test.read(&path).await;
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["storage"] = json!(version["name"] == storage);
    }
    test.admin.put(&path, &definition).await.expect_status(200);
}

#[tokio::test]
async fn update_without_change_rewrites_an_object_of_an_older_version() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let paths = serve_both(&test, &server).await;
    for name in ["a", "b"] {
        let object = foo(&test, "v1", name, &json!({"size": 3}));
        test.create(&paths[0], &object).await;
    }
    store_in(&test, "v2").await;
    // The new storage version is used once the server has seen the definition.
    for (name, version) in [("a", 0), ("b", 1)] {
        let path = format!("{}/{name}", paths[version]);
        let old = test.read(&path).await;
        let mut new = old.clone();
        for _ in 0..1200 {
            new = test.admin.put(&path, &old).await.expect_status(200).json();
            if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_ne!(
            new["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"],
            "{path} was not rewritten"
        );
        let again = test.admin.put(&path, &new).await.expect_status(200).json();
        assert_eq!(
            again["metadata"]["resourceVersion"], new["metadata"]["resourceVersion"],
            "{path} was rewritten twice"
        );
        assert_eq!(new["spec"], old["spec"]);
    }
}

#[tokio::test]
async fn failure_of_the_webhook_is_an_internal_error() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| convert(review)).await;
    let [v1, v2] = serve_both(&test, &server).await;
    test.create(&v1, &foo(&test, "v1", "a", &json!({"size": 3})))
        .await;
    let mut broken = foo(&test, "v1", "b", &json!({"size": 3}));
    broken["metadata"]["labels"] = json!({"broken": "true"});
    test.create(&v1, &broken).await;
    for path in [format!("{v2}/b"), v2.clone()] {
        let reply = test.admin.get(&path).await.expect_status(500);
        let message = reply.json()["message"].to_string();
        assert!(message.contains("conversion webhook for"), "{message}");
        assert!(
            message.contains("Kind=Foo failed: it is broken"),
            "{message}"
        );
    }
    let change = json!({"spec": {"width": 4}});
    test.admin
        .merge_patch(&format!("{v2}/b"), &change)
        .await
        .expect_status(500);
    test.admin.get(&format!("{v2}/a")).await.expect_status(200);
    test.admin.get(&v1).await.expect_status(200);
}
