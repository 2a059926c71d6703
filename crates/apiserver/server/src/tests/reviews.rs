//! Reviews, and warnings about deprecated kinds.

use super::{Answer, TestServer, start_server};
use serde_json::{Value, json};

const GROUP: &str = "/apis/authorization.k8s.io/v1";
const ENDPOINTS: &str = "/api/v1/namespaces/d/endpoints";
const DEPRECATED: &str =
    "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";

async fn review(server: &TestServer, path: &str, kind: &str, object: Value) -> Answer {
    let mut body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind});
    if let (Some(all), Some(given)) = (body.as_object_mut(), object.as_object()) {
        all.extend(given.clone());
    }
    server.write("POST", &format!("{GROUP}{path}"), body).await
}

#[tokio::test]
async fn invalid_reviews_are_rejected_with_all_problems() {
    let server = start_server(&[]).await;
    let object = json!({"metadata": {"name": "x"},
        "spec": {"resourceAttributes": {"labelSelector": {}}}});
    let answer = review(
        &server,
        "/subjectaccessreviews",
        "SubjectAccessReview",
        object,
    )
    .await;
    assert_eq!(answer.code, 422, "{}", answer.text());
    let status = answer.json();
    let fields: Vec<&str> = status["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|cause| cause["field"].as_str())
        .collect();
    assert_eq!(
        fields,
        [
            "spec.user",
            "spec.resourceAttributes.labelSelector.requirements",
            "metadata"
        ]
    );
    let own = "SelfSubjectAccessReview";
    let answer = review(
        &server,
        "/selfsubjectaccessreviews",
        own,
        json!({"spec": {}}),
    )
    .await;
    assert!(
        answer
            .text()
            .contains("Invalid value: null: exactly one of"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn empty_metadata_of_a_review_is_valid() {
    let server = start_server(&[]).await;
    let object = json!({"metadata": {"creationTimestamp": null, "namespace": "x"},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let own = "SelfSubjectAccessReview";
    let answer = review(&server, "/selfsubjectaccessreviews", own, object).await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert_eq!(answer.json()["status"]["allowed"], true);
}

#[tokio::test]
async fn local_review_asks_about_the_namespace_of_its_path() {
    let server = start_server(&[]).await;
    let path = "/namespaces/d/localsubjectaccessreviews";
    let kind = "LocalSubjectAccessReview";
    for (namespace, asked, code) in [
        ("", "d", 201),
        ("d", "d", 201),
        ("", "e", 422),
        ("e", "e", 400),
    ] {
        let object = json!({"metadata": {"namespace": namespace},
            "spec": {"user": "u", "resourceAttributes": {"namespace": asked}}});
        let answer = review(&server, path, kind, object).await;
        assert_eq!(answer.code, code, "{namespace} {asked}: {}", answer.text());
    }
}

#[tokio::test]
async fn requests_for_endpoints_are_warned_about() {
    let server = start_server(&[]).await;
    let object = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a"},
        "subsets": [{"addresses": [{"ip": "fd00:0::1"}], "ports": [{"port": 80}]}]});
    let created = server.write("POST", ENDPOINTS, object).await;
    assert_eq!(created.code, 201, "{}", created.text());
    let all: Vec<_> = created.headers.get_all("warning").iter().collect();
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0], DEPRECATED);
    for (path, code) in [("", 200), ("/a", 200), ("/missing", 404)] {
        let answer = server.get(&format!("{ENDPOINTS}{path}")).await;
        assert_eq!(answer.code, code);
        assert_eq!(answer.header("warning"), DEPRECATED);
    }
    let slices = server
        .get("/apis/discovery.k8s.io/v1/namespaces/d/endpointslices")
        .await;
    assert_eq!(slices.header("warning"), "");
}
