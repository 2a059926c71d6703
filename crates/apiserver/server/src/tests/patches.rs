//! PATCH in its forms, and server-side apply.

use super::{Answer, MAPS, TestServer, config_map, request, start_server};
use serde_json::{Value, json};

async fn patch(server: &TestServer, form: &str, query: &str, body: Value) -> Answer {
    let request = request("PATCH", &format!("{MAPS}/a{query}")).header("content-type", form);
    server.send(request, body.to_string()).await
}

async fn apply(server: &TestServer, manager: &str, query: &str, data: Value) -> Answer {
    let mut object = config_map("a");
    object["data"] = data;
    let query = format!("?fieldManager={manager}{query}");
    patch(server, "application/apply-patch+yaml", &query, object).await
}

#[tokio::test]
async fn patch_is_applied_by_its_content_type() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    for (form, body) in [
        (
            "application/merge-patch+json",
            json!({"data": {"merge": "1"}}),
        ),
        (
            "application/strategic-merge-patch+json",
            json!({"data": {"strategic": "1"}}),
        ),
        (
            "application/json-patch+json",
            json!([{"op": "add", "path": "/data/json", "value": "1"}]),
        ),
    ] {
        let answer = patch(&server, form, "", body).await;
        assert_eq!(answer.code, 200, "{form}: {}", answer.text());
    }
    let data = server.get(&format!("{MAPS}/a")).await.json()["data"].clone();
    assert_eq!(
        data,
        json!({"k": "v", "merge": "1", "strategic": "1", "json": "1"})
    );
}

#[tokio::test]
async fn null_in_a_merge_patch_removes_the_field() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let answer = patch(
        &server,
        "application/merge-patch+json",
        "",
        json!({"data": {"k": null}}),
    )
    .await;
    assert_eq!(answer.json().get("data"), None);
}

#[tokio::test]
async fn json_patch_that_does_not_apply_is_invalid() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let form = "application/json-patch+json";
    let missing = json!([{"op": "test", "path": "/data/k", "value": "other"}]);
    assert_eq!(
        patch(&server, form, "", missing).await.status(),
        (422, "Invalid".into())
    );
    let malformed = json!({"op": "add"});
    assert_eq!(patch(&server, form, "", malformed).await.code, 400);
}

#[tokio::test]
async fn unknown_form_of_a_patch_is_unsupported() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    for form in ["application/json", "text/plain"] {
        let answer = patch(&server, form, "", json!({})).await;
        assert_eq!(
            answer.status(),
            (415, "UnsupportedMediaType".into()),
            "{form}"
        );
    }
}

#[tokio::test]
async fn patch_with_a_resource_version_is_conditional() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let body = json!({"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}});
    let answer = patch(&server, "application/merge-patch+json", "", body).await;
    assert_eq!(answer.status(), (409, "Conflict".into()));
}

#[tokio::test]
async fn force_is_for_apply_only() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let answer = patch(
        &server,
        "application/merge-patch+json",
        "?force=true",
        json!({}),
    )
    .await;
    assert_eq!(answer.status(), (422, "Invalid".into()));
}

#[tokio::test]
async fn apply_creates_the_object_and_owns_its_fields() {
    let server = start_server(&[]).await;
    let created = apply(&server, "one", "", json!({"k": "v"})).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let managed = created.json()["metadata"]["managedFields"][0].clone();
    assert_eq!(
        (&managed["manager"], &managed["operation"]),
        (&json!("one"), &json!("Apply"))
    );
    let again = apply(&server, "one", "", json!({"other": "v"})).await;
    assert_eq!(again.code, 200);
    assert_eq!(
        again.json()["data"],
        json!({"other": "v"}),
        "a field that is no longer applied is removed"
    );
}

#[tokio::test]
async fn apply_of_another_managers_field_is_a_conflict_unless_forced() {
    let server = start_server(&[]).await;
    apply(&server, "one", "", json!({"k": "v"})).await;
    let conflict = apply(&server, "two", "", json!({"k": "other"})).await;
    assert_eq!(conflict.status(), (409, "Conflict".into()));
    let cause = conflict.json()["details"]["causes"][0].clone();
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".data.k"))
    );
    let forced = apply(&server, "two", "&force=true", json!({"k": "other"})).await;
    assert_eq!(forced.json()["data"]["k"], "other");
    let same = apply(&server, "one", "", json!({"k": "other"})).await;
    assert_eq!(same.code, 200, "managers may share a value");
}

#[tokio::test]
async fn apply_needs_a_field_manager_and_the_type() {
    let server = start_server(&[]).await;
    let form = "application/apply-patch+yaml";
    let answer = patch(&server, form, "", config_map("a")).await;
    assert_eq!(answer.status(), (422, "Invalid".into()));
    let answer = patch(
        &server,
        form,
        "?fieldManager=one",
        json!({"metadata": {"name": "a"}}),
    )
    .await;
    assert_eq!(answer.code, 400);
    let answer = patch(&server, form, "?fieldManager=one", config_map("b")).await;
    assert_eq!(answer.code, 400, "the name of the path");
    let mut object = config_map("a");
    object["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    assert_eq!(
        patch(&server, form, "?fieldManager=one", object).await.code,
        400
    );
}

#[tokio::test]
async fn kubectl_applies_over_its_client_side_apply_without_a_conflict() {
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["metadata"]["annotations"] = json!({ANNOTATION: object.to_string()});
    let path = format!("{MAPS}?fieldManager=kubectl-client-side-apply");
    assert_eq!(server.write("POST", &path, object).await.code, 201);
    let other = apply(&server, "other", "", json!({"k": "w"})).await;
    assert_eq!(other.status(), (409, "Conflict".into()));
    let applied = apply(&server, "kubectl", "", json!({"k": "w"})).await;
    assert_eq!(applied.code, 200, "{}", applied.text());
    let applied = applied.json();
    let text = applied["metadata"]["annotations"][ANNOTATION].as_str();
    let last: Value = serde_json::from_str(text.unwrap()).unwrap();
    let mut expected = config_map("a");
    expected["data"] = json!({"k": "w"});
    assert_eq!(last, expected);
}
