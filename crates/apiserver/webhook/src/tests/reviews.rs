use super::*;
use crate::review::encode_review;
use crate::versioned::{ObjectVersions, VersionedObjects, convert_back};
use apiserver_webhook_client::ReviewVersion;

fn target(version: &str) -> (GroupVersionResource, GroupVersionKind) {
    (
        GroupVersionResource::new("g", version, "widgets"),
        GroupVersionKind::new("g", version, "Widget"),
    )
}

fn review(user: &User, operation: Operation, path: &str) -> Value {
    let attributes = attributes(user, operation, path);
    let object = json!({"size": 1});
    let encode = |object: &Value, out: &mut Vec<u8>| out.extend(object.to_string().bytes());
    let (version, target) = (ReviewVersion::V1beta1, target("v2"));
    let body = encode_review(
        version,
        "uid-1",
        &attributes,
        &target,
        [&object, &Value::Null],
        encode,
    );
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn review_names_the_versions_of_the_webhook_and_of_the_request() {
    let user = User {
        name: "jane".into(),
        groups: vec!["dev".into()],
        ..User::default()
    };
    let review = review(&user, Operation::Update, "widgets/size");
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1beta1");
    let request = &review["request"];
    assert_eq!(request["uid"], "uid-1");
    assert_eq!(request["resource"]["version"], "v2");
    assert_eq!(request["requestResource"]["version"], "v1");
    assert_eq!(request["kind"]["version"], "v2");
    assert_eq!(request["requestKind"]["kind"], "Size");
    assert_eq!(request["subResource"], "size");
    assert_eq!(
        request["userInfo"],
        json!({"username": "jane", "groups": ["dev"]})
    );
    assert_eq!(request["object"], json!({"size": 1}));
    assert_eq!(request["oldObject"], Value::Null);
}

#[test]
fn patch_is_reviewed_as_its_result() {
    let user = User::default();
    for (operation, kind) in [
        (Operation::Update, "UpdateOptions"),
        (Operation::Create, "CreateOptions"),
    ] {
        let review = review(&user, operation, "widgets");
        assert_eq!(review["request"]["options"], json!({"kind": kind}));
    }
}

#[test]
fn namespace_is_reviewed_as_being_in_itself() {
    let user = User::default();
    let review = review(&user, Operation::Create, "namespaces");
    assert_eq!(review["request"]["namespace"], "x");
    assert!(review["request"].get("subResource").is_none());
}

#[tokio::test]
async fn objects_are_converted_and_typed() {
    let user = User::default();
    let attributes = attributes(&user, Operation::Update, "widgets");
    let object = json!({"size": 1});
    let objects = (&object, Some(&object));
    let convert = async |version: &str| {
        let target = target(version);
        let converted = VersionedObjects::convert(&Widgets, &attributes, &target, objects);
        converted.await.unwrap()
    };
    let same = convert("v1").await;
    assert_eq!(same.object["size"], 1);
    assert_eq!(same.object["apiVersion"], "g/v1");
    let other = convert("v2").await;
    assert_eq!(other.object["width"], 1);
    assert_eq!(other.old["apiVersion"], "g/v2");
    assert_eq!(other.old["kind"], "Widget");
}

#[tokio::test]
async fn object_that_a_webhook_has_changed_replaces_all_versions() {
    let user = User::default();
    let attributes = attributes(&user, Operation::Update, "widgets");
    let (object, changed) = (json!({"size": 1}), json!({"size": 2}));
    let [v1, v2] = ["v1", "v2"].map(target);
    let mut versions = ObjectVersions::default();
    for target in [&v1, &v2] {
        let objects = (&object, Some(&object));
        let found = versions.find_or_convert(&Widgets, &attributes, target, objects);
        found.await.unwrap();
    }
    let by_webhook = json!({"width": 2, "note": "x"});
    versions.replace_object(&v2.1, by_webhook.clone());
    let back = convert_back(&Widgets, &attributes, &v2, by_webhook).await;
    let back = back.unwrap();
    assert_eq!(
        (&back["size"], &back["apiVersion"]),
        (&json!(2), &json!("g/v1"))
    );
    for (target, field, expect, old) in [
        (&v2, "note", json!("x"), "width"),
        (&v1, "size", json!(2), "size"),
    ] {
        let objects = (&changed, Some(&object));
        let found = versions.find_or_convert(&Widgets, &attributes, target, objects);
        let found = found.await.unwrap();
        assert_eq!(found.object[field], expect, "{target:?}");
        assert_eq!(found.old[old], 1, "{target:?}");
    }
}
