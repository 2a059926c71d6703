//! Names of definitions.

use super::{DEFINITIONS, definition, establish, group, path_of, start};
use integration_tests::{find_condition, has_condition};
use serde_json::json;

#[tokio::test]
async fn conflicting_definition_waits_until_the_names_are_free() {
    let test = start().await;
    let group = group(&test);
    let first = definition(&group, "foos", "Foo");
    establish(&test, &first).await;
    let second = definition(&group, "bars", "Foo");
    test.create(DEFINITIONS, &second).await;
    let path = path_of(&second);
    let waiting = test
        .wait_until(&path, "refused", |d| {
            find_condition(d, "NamesAccepted")["status"] == "False"
        })
        .await;
    let condition = find_condition(&waiting, "NamesAccepted");
    // Singular, kind and list kind conflict; the last is reported.
    assert_eq!(condition["reason"], "ListKindConflict");
    assert_eq!(condition["message"], "\"FooList\" is already in use");
    let condition = find_condition(&waiting, "Established");
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("NotAccepted"))
    );
    assert_eq!(waiting["status"]["acceptedNames"]["plural"], "bars");
    let bars = test.group(&format!("{group}/v1"), "bars");
    test.admin.get(&bars).await.expect_status(404);

    test.admin.delete(&path_of(&first)).await.expect_status(200);
    test.wait_until(&path, "established", |d| has_condition(d, "Established"))
        .await;
    test.admin.get(&bars).await.expect_status(200);
}

#[tokio::test]
async fn protected_group_has_the_condition_of_its_approval() {
    let test = start().await;
    let group = format!("{}.k8s.io", test.namespace);
    let mut foo = definition(&group, "foos", "Foo");
    foo["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    establish(&test, &foo).await;
    let conforms = "KubernetesAPIApprovalPolicyConformant";
    let marked = test
        .wait_until(&path_of(&foo), "marked", |d| {
            find_condition(d, conforms)["status"] == "False"
        })
        .await;
    let condition = find_condition(&marked, conforms);
    assert_eq!(condition["reason"], "UnapprovedAnnotation");
    assert_eq!(condition["message"], "not approved: \"unapproved, a test\"");
}

#[tokio::test]
async fn resource_in_a_built_in_group_is_served_beside_the_built_in_ones() {
    let test = start().await;
    let plural = format!("{}s", test.namespace);
    let kind = test.namespace.to_uppercase();
    let mut foo = definition("networking.k8s.io", &plural, &kind);
    foo["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    establish(&test, &foo).await;
    test.admin
        .get(&test.group("networking.k8s.io/v1", &plural))
        .await
        .expect_status(200);
    test.admin
        .get(&test.group("networking.k8s.io/v1", "ingresses"))
        .await
        .expect_status(200);
    test.admin.delete(&path_of(&foo)).await.expect_status(200);
    test.wait_until_deleted(&path_of(&foo)).await;
}
