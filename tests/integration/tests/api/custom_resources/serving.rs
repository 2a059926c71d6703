//! The resources that an established definition serves.

use super::{DEFINITIONS, definition, establish, group, instance, path_of, start, wait_for_status};
use integration_tests::{ReplyExt, has_condition, wait_for};
use serde_json::{Value, json};

#[tokio::test]
async fn established_definition_serves_its_resource_at_once() {
    let test = start().await;
    let group = group(&test);
    let established = establish(&test, &definition(&group, "foos", "Foo")).await;
    let types: Vec<&str> = established["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|condition| condition["type"].as_str())
        .collect();
    assert_eq!(types, ["NamesAccepted", "Established"]);
    assert_eq!(
        established["status"]["acceptedNames"],
        established["spec"]["names"]
    );
    assert_eq!(established["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(established["metadata"].get("finalizers"), None);

    let foos = test.group(&format!("{group}/v1"), "foos");
    let version = test.version(&foos).await;
    let mut watch = test
        .admin
        .watch(&format!("{foos}?watch=true&resourceVersion={version}"))
        .await;
    let created = test.create(&foos, &instance(&group, "Foo", "a")).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let one = format!("{foos}/a");
    let patched = test
        .admin
        .merge_patch(&one, &json!({"spec": {"size": 2}}))
        .await;
    assert_eq!(patched.expect_status(200).json()["spec"]["size"], 2);
    let mut intent = instance(&group, "Foo", "b");
    intent["spec"] = json!({"color": "red"});
    let applied = test.admin.apply(&format!("{foos}/b"), "m", &intent).await;
    assert_eq!(applied.expect_status(201).json()["spec"]["color"], "red");
    assert_eq!(test.names(&foos).await, ["a", "b"]);
    assert_eq!(
        watch.take(3).await,
        [("ADDED", "a"), ("MODIFIED", "a"), ("ADDED", "b")]
            .map(|(e, n)| (e.to_owned(), n.to_owned()))
    );
    let found = test.read(&format!("/apis/{group}")).await;
    assert_eq!(found["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn versions_differ_in_their_name_without_a_conversion() {
    let test = start().await;
    let group = group(&test);
    let mut two = definition(&group, "foos", "Foo");
    let mut newer = two["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    newer["storage"] = json!(false);
    two["spec"]["versions"].as_array_mut().unwrap().push(newer);
    establish(&test, &two).await;
    let first = test.group(&format!("{group}/v1"), "foos");
    let second = test.group(&format!("{group}/v2"), "foos");
    test.create(&first, &instance(&group, "Foo", "a")).await;
    let read = test.read(&format!("{second}/a")).await;
    assert_eq!(read["apiVersion"], format!("{group}/v2"));
    assert_eq!(read["spec"]["size"], 1);

    // The storage version changes, and the old version ends.
    let path = path_of(&two);
    let mut changed = test.read(&path).await;
    let versions = &mut changed["spec"]["versions"];
    versions[0]["storage"] = json!(false);
    versions[0]["served"] = json!(false);
    versions[1]["storage"] = json!(true);
    let changed = test
        .admin
        .put(&path, &changed)
        .await
        .expect_status(200)
        .json();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    wait_for_status(&test, &first, 404).await;
    assert_eq!(test.read(&format!("{second}/a")).await["spec"]["size"], 1);
}

#[tokio::test]
async fn changed_schema_takes_effect_and_ends_no_watch() {
    let test = start().await;
    let group = group(&test);
    let foo = definition(&group, "foos", "Foo");
    establish(&test, &foo).await;
    let foos = test.group(&format!("{group}/v1"), "foos");
    let version = test.version(&foos).await;
    let mut watch = test
        .admin
        .watch(&format!("{foos}?watch=true&resourceVersion={version}"))
        .await;
    let path = path_of(&foo);
    let mut changed = test.read(&path).await;
    changed["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    let changed = test.admin.put(&path, &changed).await.expect_status(200);
    let changed = changed.json();
    let subresources = &changed["spec"]["versions"][0]["subresources"];
    assert_eq!(*subresources, json!({"status": {}}));
    let status = format!("{foos}/a/status");
    let mut object = instance(&group, "Foo", "a");
    object["status"] = json!({"ready": true});
    wait_for("the subresource exists", async || {
        let list = test.read(&format!("/apis/{group}/v1")).await;
        list["resources"]
            .as_array()
            .is_some_and(|resources| resources.len() == 2)
    })
    .await;
    let created = test.create(&foos, &object).await;
    assert_eq!(created.get("status"), None);
    let ready = json!({"status": {"ready": true}});
    let patched = test
        .admin
        .merge_patch(&status, &ready)
        .await
        .expect_status(200);
    assert_eq!(patched.json()["status"]["ready"], true);
    let events = watch.take(2).await;
    assert_eq!(
        events[0],
        ("ADDED".to_owned(), "a".to_owned()),
        "the same watch goes on"
    );
}

#[tokio::test]
async fn hundred_definitions_are_established_together() {
    let test = start().await;
    let group = group(&test);
    let definitions: Vec<Value> = (0..100)
        .map(|i| definition(&group, &format!("foo{i}s"), &format!("Foo{i}")))
        .collect();
    let creates = definitions.iter().map(|one| test.create(DEFINITIONS, one));
    futures::future::join_all(creates).await;
    wait_for("all are established", async || {
        let all = test.items(DEFINITIONS).await;
        let own = all
            .iter()
            .filter(|one| one["spec"]["group"] == group.as_str());
        own.filter(|one| has_condition(one, "Established")).count() == 100
    })
    .await;
    let list = test.read(&format!("/apis/{group}/v1")).await;
    assert_eq!(list["resources"].as_array().unwrap().len(), 100);
    for i in [0, 50, 99] {
        let foos = test.group(&format!("{group}/v1"), &format!("foo{i}s"));
        test.create(&foos, &instance(&group, &format!("Foo{i}"), "a"))
            .await;
    }
}

#[tokio::test]
async fn readiness_names_the_definitions() {
    let test = start().await;
    let reply = test
        .admin
        .get("/readyz/poststarthook/crd-informer-synced")
        .await;
    assert_eq!(reply.expect_status(200).text(), "ok");
}

#[tokio::test]
async fn unknown_resource_of_a_served_group_is_not_found() {
    let test = start().await;
    let group = group(&test);
    establish(&test, &definition(&group, "foos", "Foo")).await;
    test.admin
        .get(&test.group(&format!("{group}/v1"), "bars"))
        .await
        .expect_reason(404, "NotFound");
}
