//! Request bodies: encodings, types, strictness, limits, options.

use super::{MAPS, TestServer, config_map, request, start_server};
use api_codec::{envelope, proto};
use serde_json::{Value, json};

async fn post(
    server: &TestServer,
    content_type: &str,
    body: impl Into<bytes::Bytes>,
) -> super::Answer {
    server
        .send(
            request("POST", MAPS).header("content-type", content_type),
            body,
        )
        .await
}

#[tokio::test]
async fn body_is_read_in_json_yaml_and_protobuf() {
    let server = start_server(&[]).await;
    let resource = api_kinds::find("", "v1", "configmaps").unwrap();
    let encoded = proto::encode(resource.schema.message().unwrap(), &config_map("c"));
    for (content_type, body) in [
        (
            "application/json; charset=utf-8",
            config_map("a").to_string().into_bytes(),
        ),
        (
            "application/yaml",
            b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: v}\n".to_vec(),
        ),
        (
            "application/vnd.kubernetes.protobuf",
            envelope::wrap("v1", "ConfigMap", &encoded),
        ),
        ("", config_map("d").to_string().into_bytes()),
    ] {
        let created = post(&server, content_type, body).await;
        assert_eq!(created.code, 201, "{content_type}: {}", created.text());
        assert_eq!(created.json()["data"]["k"], "v", "{content_type}");
    }
}

#[tokio::test]
async fn unknown_content_type_is_unsupported() {
    let server = start_server(&[]).await;
    for content_type in [
        "text/plain",
        "application/xml",
        "application/merge-patch+json",
    ] {
        let answer = post(&server, content_type, config_map("a").to_string()).await;
        assert_eq!(
            answer.status(),
            (415, "UnsupportedMediaType".into()),
            "{content_type}"
        );
    }
}

#[tokio::test]
async fn malformed_body_is_a_bad_request() {
    let server = start_server(&[]).await;
    for body in [
        "",
        "{",
        "[]",
        "\"text\"",
        r#"{"metadata": 5}"#,
        r#"{"data": {"k": 5}}"#,
    ] {
        let answer = post(&server, "application/json", body).await;
        assert_eq!(answer.status(), (400, "BadRequest".into()), "{body}");
    }
}

#[tokio::test]
async fn body_of_another_kind_is_rejected() {
    let server = start_server(&[]).await;
    for body in [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    ] {
        let answer = server.write("POST", MAPS, body.clone()).await;
        assert_eq!(answer.code, 400, "{body}");
    }
    let untyped = server
        .write("POST", MAPS, json!({"metadata": {"name": "a"}}))
        .await;
    assert_eq!(
        (untyped.code, untyped.json()["kind"].clone()),
        (201, json!("ConfigMap"))
    );
}

#[tokio::test]
async fn body_above_the_limit_is_too_large() {
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["data"]["k"] = "x".repeat(3 * 1024 * 1024).into();
    let answer = server.write("POST", MAPS, object).await;
    assert_eq!(answer.status(), (413, "RequestEntityTooLarge".into()));
    assert_eq!(server.etcd.count_requests("txn"), 0);
}

#[tokio::test]
async fn unknown_field_is_a_warning_an_error_or_ignored() {
    let server = start_server(&[]).await;
    let mut object = config_map("a");
    object["colour"] = json!("red");
    let create = async |validation: &str| {
        let path = format!("{MAPS}?dryRun=All&fieldValidation={validation}");
        server.write("POST", &path, object.clone()).await
    };
    for validation in ["", "Warn"] {
        let warned = create(validation).await;
        assert_eq!(warned.code, 201);
        assert_eq!(
            warned.header("warning"),
            "299 - \"unknown field \\\"colour\\\"\""
        );
    }
    let strict = create("Strict").await;
    assert_eq!(strict.code, 400);
    assert!(strict.text().contains("unknown field"), "{}", strict.text());
    let ignored = create("Ignore").await;
    assert_eq!((ignored.code, ignored.header("warning")), (201, ""));
    assert_eq!(create("Loose").await.code, 422);
}

#[tokio::test]
async fn duplicate_field_is_rejected_if_strict() {
    let server = start_server(&[]).await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}"#;
    let request = request("POST", &format!("{MAPS}?fieldValidation=Strict"))
        .header("content-type", "application/json");
    let answer = server.send(request, body).await;
    assert_eq!(answer.code, 400);
    assert!(
        answer.text().contains("duplicate field"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn dry_run_returns_the_object_and_stores_nothing() {
    let server = start_server(&[]).await;
    let answer = server
        .write("POST", &format!("{MAPS}?dryRun=All"), config_map("a"))
        .await;
    assert_eq!(answer.code, 201);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
    let unknown = server
        .write("POST", &format!("{MAPS}?dryRun=Some"), config_map("a"))
        .await;
    assert_eq!(unknown.status(), (422, "Invalid".into()));
}

#[tokio::test]
async fn field_manager_is_the_parameter_or_the_program() {
    let server = start_server(&[]).await;
    let create = async |query: &str, agent: &str| {
        let request =
            request("POST", &format!("{MAPS}?dryRun=All&{query}")).header("user-agent", agent);
        let answer = server.send(request, config_map("a").to_string()).await;
        if answer.code != 201 {
            return Value::from(answer.code);
        }
        answer.json()["metadata"]["managedFields"][0]["manager"].clone()
    };
    assert_eq!(create("fieldManager=me", "kubectl/v1.36").await, "me");
    assert_eq!(create("", "kubectl/v1.36 (linux/amd64)").await, "kubectl");
    assert_eq!(create("", "").await, "unknown");
    let long = format!("fieldManager={}", "x".repeat(129));
    assert_eq!(create(&long, "kubectl").await, 422);
}

#[tokio::test]
async fn delete_reads_its_options_from_the_query_or_the_body() {
    let server = start_server(&[]).await;
    for (name, query, body) in [
        ("a", "?propagationPolicy=Orphan", String::new()),
        (
            "b",
            "",
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"})
                .to_string(),
        ),
    ] {
        server.create_map(name).await;
        let request = request("DELETE", &format!("{MAPS}/{name}{query}"));
        let answer = server
            .send(request.header("content-type", "application/json"), body)
            .await;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert_eq!(
            answer.json()["metadata"]["finalizers"],
            json!(["orphan"]),
            "{name}"
        );
    }
    let invalid = server
        .send(
            request("DELETE", &format!("{MAPS}/a?gracePeriodSeconds=soon")),
            "",
        )
        .await;
    assert_eq!(invalid.code, 400);
}

#[tokio::test]
async fn delete_of_jobs_without_a_policy_warns_about_their_pods() {
    let server = start_server(&[]).await;
    let warning = "299 - \"child pods are preserved by default when jobs are deleted; set \
        propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
        this warning\"";
    for (path, code, warns) in [
        ("/apis/batch/v1/namespaces/d/jobs/a", 404, true),
        ("/apis/batch/v1/namespaces/d/jobs", 200, true),
        (
            "/apis/batch/v1/namespaces/d/jobs?propagationPolicy=Orphan",
            200,
            false,
        ),
        (
            "/apis/batch/v1/namespaces/d/jobs?orphanDependents=false",
            200,
            false,
        ),
        ("/apis/batch/v1/namespaces/d/cronjobs", 200, false),
        ("/api/v1/namespaces/d/replicationcontrollers", 200, false),
    ] {
        let deleted = server.send(request("DELETE", path), "").await;
        let expect = if warns { warning } else { "" };
        assert_eq!(deleted.code, code, "{path}");
        assert_eq!(deleted.header("warning"), expect, "{path}");
    }
}

#[tokio::test]
async fn delete_returns_a_status_or_for_some_kinds_the_object() {
    let server = start_server(&[]).await;
    let created = server.create_map("a").await.json();
    let deleted = server
        .send(request("DELETE", &format!("{MAPS}/a")), "")
        .await
        .json();
    assert_eq!(
        (&deleted["kind"], &deleted["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(deleted["details"]["uid"], created["metadata"]["uid"]);
    let accounts = "/api/v1/namespaces/d/serviceaccounts";
    server
        .write("POST", accounts, json!({"metadata": {"name": "a"}}))
        .await;
    let deleted = server
        .send(request("DELETE", &format!("{accounts}/a")), "")
        .await
        .json();
    assert_eq!(deleted["kind"], "ServiceAccount", "as upstream");
}

#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let server = start_server(&[]).await;
    for name in ["a", "b"] {
        server.create_map(name).await;
    }
    let path = format!("{MAPS}?fieldSelector=metadata.name%3Da");
    let deleted = server.send(request("DELETE", &path), "").await.json();
    assert_eq!(deleted["kind"], "ConfigMapList");
    assert_eq!(deleted["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.code, 404);
    assert_eq!(server.get(&format!("{MAPS}/b")).await.code, 200);
}

#[tokio::test]
async fn invalid_selector_is_a_bad_request() {
    let server = start_server(&[]).await;
    for query in [
        "labelSelector=a%20b%20c",
        "fieldSelector=spec.colour%3Dred",
        "limit=many",
    ] {
        let answer = server.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(answer.status(), (400, "BadRequest".into()), "{query}");
    }
}

#[tokio::test]
async fn list_pages_over_http() {
    let server = start_server(&[]).await;
    for name in ["a", "b", "c"] {
        server.create_map(name).await;
    }
    let first = server.get(&format!("{MAPS}?limit=2")).await.json();
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = server
        .get(&format!("{MAPS}?limit=2&continue={token}"))
        .await
        .json();
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    assert_eq!(
        rest["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    assert_eq!(
        rest["metadata"]
            .get("continue")
            .and_then(Value::as_str)
            .unwrap_or(""),
        ""
    );
}
