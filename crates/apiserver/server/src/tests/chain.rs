//! The stages of the handler chain, and the headers that they set.

use super::{MAPS, config_map, request, start_server};
use http::Request;
use serde_json::json;
use std::sync::Arc;
use tokio::task::JoinSet;

#[tokio::test]
async fn request_without_credentials_is_unauthorized() {
    let server = start_server(&["--anonymous-auth=false"]).await;
    for token in [None, Some("Bearer nonsense"), Some("Basic YTpi")] {
        let mut request = Request::builder().uri(MAPS);
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let answer = server.send(request, "").await;
        assert_eq!(answer.status(), (401, "Unauthorized".into()), "{token:?}");
    }
}

#[tokio::test]
async fn request_without_credentials_is_anonymous_if_allowed() {
    let server = start_server(&[]).await;
    let answer = server.send(Request::builder().uri(MAPS), "").await;
    assert_eq!(answer.status(), (403, "Forbidden".into()));
    assert!(
        answer.text().contains("system:anonymous"),
        "{}",
        answer.text()
    );
    let bad = Request::builder()
        .uri(MAPS)
        .header("authorization", "Bearer nonsense");
    assert_eq!(
        server.send(bad, "").await.code,
        401,
        "invalid is not anonymous"
    );
}

#[tokio::test]
async fn forbidden_request_names_user_verb_and_resource() {
    let server = start_server(&[]).await;
    let request = Request::builder()
        .uri(MAPS)
        .header("authorization", "Bearer alice-token");
    let answer = server.send(request, "").await;
    assert_eq!(answer.status(), (403, "Forbidden".into()));
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    let expect = "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"d\"";
    assert!(message.starts_with(expect), "{message}");
}

#[tokio::test]
async fn unauthorized_request_does_not_reach_the_store() {
    let server = start_server(&[]).await;
    let before = server.etcd.count_requests("range");
    let request = Request::builder()
        .method("POST")
        .uri(MAPS)
        .header("authorization", "Bearer alice-token");
    let answer = server.send(request, config_map("a").to_string()).await;
    assert_eq!(answer.code, 403);
    assert_eq!(server.etcd.count_requests("range"), before);
    assert_eq!(server.etcd.count_requests("txn"), 0);
}

#[tokio::test]
async fn audit_id_of_the_client_is_returned() {
    let server = start_server(&[]).await;
    let answer = server
        .send(request("GET", MAPS).header("audit-id", "my-id"), "")
        .await;
    assert_eq!(answer.header("audit-id"), "my-id");
    let long = "x".repeat(65);
    let answer = server
        .send(request("GET", MAPS).header("audit-id", &long), "")
        .await;
    assert_ne!(answer.header("audit-id"), long);
}

#[tokio::test]
async fn request_without_an_audit_id_gets_a_uuid() {
    let server = start_server(&[]).await;
    let first = server
        .get("/api/v1/nonsense")
        .await
        .header("audit-id")
        .to_owned();
    let second = server.get(MAPS).await.header("audit-id").to_owned();
    assert_ne!(first, second);
    let lengths: Vec<usize> = first.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{first}");
    assert_eq!(first.as_bytes()[14], b'4', "version 4: {first}");
}

#[tokio::test]
async fn unclean_path_is_redirected_and_a_malformed_one_rejected() {
    let server = start_server(&[]).await;
    let redirected = server.get("/api//v1/../v1/pods").await;
    assert_eq!(
        (redirected.code, redirected.header("location")),
        (301, "/api/v1/pods")
    );
    assert_eq!(server.get("/api/v1/%zz").await.code, 400);
    assert_eq!(server.get("/api/v1/%00").await.code, 400);
}

#[tokio::test]
async fn unknown_paths_and_resources_are_not_found() {
    let server = start_server(&[]).await;
    assert_eq!(server.get("/nonsense").await.text(), "404 page not found\n");
    assert_eq!(
        server.get("/apis/example.com/v1/things").await.text(),
        "404 page not found\n"
    );
    let status = server.get("/api/v1/namespaces/d/things").await.status();
    assert_eq!(status, (404, "NotFound".into()));
    let status = server
        .get("/apis/apps/v1beta1/namespaces/d/deployments")
        .await
        .status();
    assert_eq!(status, (404, "NotFound".into()));
}

#[tokio::test]
async fn wrong_method_is_not_allowed() {
    let server = start_server(&[]).await;
    for (method, path) in [
        ("POST", "/api/v1/namespaces/d/configmaps/a"),
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("POST", "/version"),
        ("DELETE", "/healthz"),
        ("PUT", "/apis/authentication.k8s.io/v1/tokenreviews/x"),
    ] {
        let answer = server.write(method, path, json!({})).await;
        assert_eq!(answer.code, 405, "{method} {path}");
    }
}

#[tokio::test]
async fn timeout_of_the_client_ends_a_request() {
    let server = start_server(&[]).await;
    server.etcd.stall(true);
    let answer = server.get(&format!("{MAPS}/a?timeout=50ms")).await;
    assert_eq!(answer.status(), (504, "Timeout".into()));
    let invalid = server.get(&format!("{MAPS}/a?timeout=soon")).await;
    assert_eq!(invalid.status(), (400, "BadRequest".into()));
}

#[tokio::test]
async fn client_can_not_extend_the_request_timeout() {
    let server = start_server(&["--request-timeout=50ms"]).await;
    server.etcd.stall(true);
    let answer = server.get(&format!("{MAPS}/a?timeout=1h")).await;
    assert_eq!(answer.code, 504);
}

#[tokio::test]
async fn write_above_the_limit_is_rejected_while_reads_and_health_checks_pass() {
    let flags = [
        "--max-mutating-requests-inflight=1",
        "--request-timeout=20s",
        "--authorization-mode=AlwaysAllow",
    ];
    let server = Arc::new(start_server(&flags).await);
    let write = |name: &str| {
        let request = Request::builder()
            .method("POST")
            .uri(MAPS)
            .header("authorization", "Bearer alice-token")
            .header("content-type", "application/json");
        (request, config_map(name).to_string())
    };
    server.etcd.stall(true);
    // Either write may take the seat. The other one is rejected after a quarter of the timeout.
    let mut writes = JoinSet::new();
    for name in ["a", "b"] {
        let (server, (request, body)) = (server.clone(), write(name));
        writes.spawn(async move { server.send(request, body).await });
    }
    let rejected = writes.join_next().await.unwrap().unwrap();
    assert_eq!(rejected.status(), (429, "TooManyRequests".into()));
    assert_eq!(rejected.header("retry-after"), "1");
    let read = Request::builder()
        .uri(format!("{MAPS}?resourceVersion=0"))
        .header("authorization", "Bearer alice-token");
    assert_eq!(server.send(read, "").await.code, 200);
    server.etcd.stall(false);
    let admitted = writes.join_next().await.unwrap().unwrap();
    assert_eq!(admitted.code, 201);
}

#[tokio::test]
async fn impersonation_needs_permission_and_replaces_the_user() {
    let server = start_server(&[]).await;
    let as_alice = request("GET", MAPS).header("impersonate-user", "alice");
    let answer = server.send(as_alice, "").await;
    assert_eq!(answer.code, 403, "the administrator acts as alice");
    assert!(
        answer.text().contains("User \\\"alice\\\" cannot list"),
        "{}",
        answer.text()
    );
    let by_alice = Request::builder()
        .uri(MAPS)
        .header("authorization", "Bearer alice-token")
        .header("impersonate-user", "admin");
    let answer = server.send(by_alice, "").await;
    assert!(
        answer.text().contains("cannot impersonate resource"),
        "{}",
        answer.text()
    );
    let group_only = request("GET", MAPS).header("impersonate-group", "system:masters");
    assert_eq!(server.send(group_only, "").await.code, 400);
}

#[tokio::test]
async fn self_subject_review_shows_the_user() {
    let server = start_server(&[]).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let info = server.write("POST", path, review).await.json()["status"]["userInfo"].clone();
    assert_eq!(info["username"], "admin");
    assert_eq!(
        info["groups"],
        json!(["system:masters", "system:authenticated"])
    );
}

#[tokio::test]
async fn access_review_decides_for_another_user() {
    let server = start_server(&[]).await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (user, allowed) in [
        (json!({"user": "alice"}), false),
        (json!({"user": "x", "groups": ["system:masters"]}), true),
    ] {
        let mut review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "d"}}});
        review["spec"]
            .as_object_mut()
            .unwrap()
            .extend(user.as_object().unwrap().clone());
        let status = server.write("POST", path, review).await.json()["status"].clone();
        assert_eq!(status["allowed"], allowed, "{user}");
    }
}

#[tokio::test]
async fn response_names_flow_schema_and_priority_level() {
    let server = start_server(&[]).await;
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
    let level = server
        .write(
            "POST",
            &format!("{group}/prioritylevelconfigurations"),
            level,
        )
        .await;
    assert_eq!(level.code, 201, "{}", level.text());
    let rules = json!([{"subjects": [{"kind": "User", "user": {"name": "admin"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}]}]);
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "s"},
        "spec": {"priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 100, "rules": rules}});
    let schema = server
        .write("POST", &format!("{group}/flowschemas"), schema)
        .await;
    assert_eq!(schema.code, 201, "{}", schema.text());
    // A read waits until the watch cache, which feeds the classification, shows both writes.
    server.get(MAPS).await;
    let answer = server.get(MAPS).await;
    let uid = |answer: &super::Answer| {
        answer.json()["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        answer.header("x-kubernetes-pf-flowschema-uid"),
        uid(&schema)
    );
    assert_eq!(
        answer.header("x-kubernetes-pf-prioritylevel-uid"),
        uid(&level)
    );
}

#[tokio::test]
async fn requests_are_counted_by_verb_resource_and_code() {
    let server = start_server(&[]).await;
    server.get(MAPS).await;
    server.get(&format!("{MAPS}/missing")).await;
    server.get("/apis/example.com/v1/anything").await;
    let page = server.get("/metrics").await;
    let has = |line: &str| assert!(page.text().contains(line), "{line}");
    has(
        "apiserver_request_total{code=\"200\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"LIST\",version=\"v1\"} 1",
    );
    has(
        "apiserver_request_total{code=\"404\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"} 1",
    );
    assert!(!page.text().contains("example.com"), "labels are bounded");
}
