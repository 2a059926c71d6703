//! The aggregation layer: local APIServices, and an extension server behind a Service.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{Caller, ControlPlane, ExtensionRequest, ExtensionServer, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const FLUNDERS: &str = "/apis/ext.example.com/v1/namespaces/default/flunders";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

async fn start_plane() -> ControlPlane {
    ControlPlane::start_with(Options {
        api_server: vec!["--enable-aggregator-routing=true".into()],
        ..Options::default()
    })
    .await
}

fn respond_json(status: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Responds like an API server with one resource.
fn respond(request: &ExtensionRequest) -> String {
    let resources = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ext.example.com/v1",
        "resources": [{"name": "flunders", "singularName": "flunder", "namespaced": true,
            "kind": "Flunder", "verbs": ["create", "get", "list", "watch"]}]});
    let line = request.line();
    if line == "GET /apis/ext.example.com/v1" {
        return respond_json("200 OK", &resources);
    }
    if line == "GET /openapi/v3" {
        let url = "/openapi/v3/apis/ext.example.com/v1?hash=A1";
        let paths = json!({"apis/ext.example.com/v1": {"serverRelativeURL": url},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=A2"}});
        return respond_json("200 OK", &json!({"paths": paths}));
    }
    if line == "GET /openapi/v2" {
        return respond_json("200 OK", &openapi_v2());
    }
    if line.starts_with("GET /openapi/v3/apis/ext.example.com/v1") {
        return respond_json("200 OK", &json!({"openapi": "3.0.0", "paths": {}}));
    }
    if line.ends_with("/flunders/f/attach") {
        return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
            .into();
    }
    if line.contains("watch=1") {
        let event = "{\"type\":\"ADDED\",\"object\":{}}\n";
        return format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{event}{event}");
    }
    match line.split(' ').next() {
        Some("POST") => respond_json("201 Created", &json!({"kind": "Flunder"})),
        _ => respond_json("200 OK", &json!({"kind": "FlunderList", "items": []})),
    }
}

/// A document with a path of its own, one of another server, and a definition with the name of a
/// built-in one.
fn openapi_v2() -> Value {
    let path = |name: &str| {
        json!({"get": {"responses": {"200": {"description": "OK",
        "schema": {"$ref": format!("#/definitions/{name}")}}}}})
    };
    let pod = "io.k8s.api.core.v1.Pod";
    json!({"swagger": "2.0", "info": {"title": "flunders", "version": "v1"},
        "paths": {"/apis/ext.example.com/v1/flunders": path("Flunder"),
            "/api/v1/pods": path("Flunder")},
        "definitions": {"Flunder": {"type": "object", "properties": {
            "pod": {"$ref": format!("#/definitions/{pod}")}}}, pod: {"type": "string"}}})
}

async fn wait_for<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_group_versions_have_api_services() {
    let plane = ControlPlane::start().await;
    let admin = plane.admin();
    let get = async |name: &str| admin.get(&format!("{API_SERVICES}/{name}")).await;
    let (admin, api_services) = (&admin, API_SERVICES);
    wait_for("no local APIService", || async move {
        let found = admin.get(&format!("{api_services}/v1.apps")).await;
        found.status == 200 && !found.json()["status"]["conditions"][0].is_null()
    })
    .await;
    let apps = get("v1.apps").await.json();
    assert_eq!(apps["spec"]["groupPriorityMinimum"], 17800);
    assert_eq!(apps["spec"]["versionPriority"], 15);
    let label = "kube-aggregator.kubernetes.io/automanaged";
    assert_eq!(apps["metadata"]["labels"][label], "onstart");
    assert_eq!(apps["status"]["conditions"][0]["reason"], "Local");
    get("v1.").await.expect_success();
    get("v1.apiregistration.k8s.io").await.expect_status(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn api_service_has_the_same_fields_in_protobuf() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let plane = start_plane().await;
    let admin = plane.admin();
    let ca = std::fs::read(plane.certificate("ca")).unwrap();
    let spec = json!({"group": "e.example.com", "version": "v1", "caBundle": STANDARD.encode(ca),
        "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "absent", "port": 8443}});
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.e.example.com"}, "spec": spec});
    let created = admin.post(API_SERVICES, &object).await.expect_success();
    assert_eq!(created.json()["spec"], spec);
    let path = &format!("{API_SERVICES}/v1.e.example.com");
    let caller = &admin;
    // Afterwards the server writes its status no more.
    wait_for("no condition", || async move {
        let status = caller.get(path).await.json()["status"].clone();
        status["conditions"][0]["reason"] == "ServiceNotFound"
    })
    .await;
    let object = admin.get(path).await.json();
    let accept = [("accept", PROTOBUF)];
    let read = admin.send(Method::GET, path, &accept, "").await.unwrap();
    assert_eq!(read.headers["content-type"], PROTOBUF);
    let dry_run = format!("{path}?dryRun=All");
    let content = [("content-type", PROTOBUF)];
    let written = admin.send(Method::PUT, &dry_run, &content, read.body.clone());
    let written = written.await.unwrap().expect_success().json();
    assert_eq!(
        (&written["spec"], &written["status"]),
        (&spec, &object["status"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_remote_group_reach_its_server_with_the_user() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    server.register(&plane, "Passed").await;
    let rules = json!([{"apiGroups": ["ext.example.com"], "resources": ["flunders"], "verbs": ["list", "create", "watch"]}]);
    plane.grant("jane", "default", rules).await;
    let jane = plane.user("jane", Some("team"));
    wait_for("not routed", || async {
        plane.user("jane", Some("team")).get(FLUNDERS).await.status == 200
    })
    .await;
    let list = jane.get(FLUNDERS).await.expect_success().json();
    assert_eq!(list["kind"], "FlunderList");
    let object = json!({"kind": "Flunder", "metadata": {"name": "f"}});
    jane.post(FLUNDERS, &object).await.expect_status(201);
    let watched = jane.get(&format!("{FLUNDERS}?watch=1")).await;
    assert_eq!(watched.text().lines().count(), 2);
    let received = server.received();
    let post = received
        .iter()
        .find(|request| request.line().starts_with("POST"))
        .unwrap();
    assert_eq!(post.line(), format!("POST {FLUNDERS}"));
    assert!(post.body.contains("Flunder"));
    assert_eq!(post.header("x-remote-user"), ["jane"]);
    assert!(
        post.header("x-remote-group")
            .contains(&"system:authenticated")
    );
    assert!(post.header("authorization").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn request_without_permission_is_not_forwarded() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    server.register(&plane, "Passed").await;
    let mallory = plane.user("mallory", None);
    mallory.get(FLUNDERS).await.expect_status(403);
    assert!(server.received().is_empty());
    plane.admin().get(FLUNDERS).await.expect_success();
    assert_eq!(server.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_passes_through() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    server.register(&plane, "Passed").await;
    let mut stream = plane.admin().connect().await.unwrap();
    let request = format!(
        "POST {FLUNDERS}/f/attach HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    assert!(text.starts_with("HTTP/1.1 101"), "{text}");
    stream.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_contains_the_remote_group() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    server.register(&plane, "Passed").await;
    let admin = plane.admin();
    let group = admin.get("/apis/ext.example.com").await.expect_success();
    assert_eq!(group.json()["preferredVersion"]["version"], "v1");
    let groups = admin.get("/apis").await.json();
    let groups = groups["groups"].as_array().unwrap().clone();
    assert!(
        groups
            .iter()
            .any(|group| group["name"] == "ext.example.com")
    );
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = admin
        .clone()
        .with_header("accept", accept)
        .get("/apis")
        .await
        .expect_success()
        .json();
    let items = aggregated["items"].as_array().unwrap().clone();
    let own = items
        .iter()
        .find(|item| item["metadata"]["name"] == "ext.example.com");
    let version = &own.unwrap()["versions"][0];
    assert_eq!(version["freshness"], "Current");
    assert_eq!(version["resources"][0]["resource"], "flunders");
    let list = admin.get("/apis/ext.example.com/v1").await.json();
    assert_eq!(list["resources"][0]["name"], "flunders");
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_of_the_remote_group_is_that_of_its_server() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    server.register(&plane, "Passed").await;
    let admin = plane.admin();
    let admin = &admin;
    let url = "/openapi/v3/apis/ext.example.com/v1?hash=A1";
    wait_for("not in the index", || async move {
        let index = admin.get("/openapi/v3").await.expect_success().json();
        index["paths"]["apis/ext.example.com/v1"]["serverRelativeURL"] == url
    })
    .await;
    let index = admin.get("/openapi/v3").await.json();
    let apps = &index["paths"]["apis/apps/v1"]["serverRelativeURL"];
    assert!(!apps.as_str().unwrap().ends_with("=A2"), "{apps}");
    let jane = plane.user("jane", None);
    let document = jane.get(url).await.expect_success().json();
    assert_eq!(document["openapi"], "3.0.0");
    let received = server.received();
    let last = received.last().unwrap();
    assert_eq!(last.line(), format!("GET {url}"));
    assert_eq!(last.header("x-remote-user"), ["jane"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_v2_has_the_paths_of_extension_servers() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    let admin = plane.admin();
    let admin = &admin;
    let document = async || admin.get("/openapi/v2").await.expect_success().json();
    let before = document().await;
    server.register(&plane, "Passed").await;
    let path = "/apis/ext.example.com/v1/flunders";
    wait_for("not in the document", || async {
        document().await["paths"].get(path).is_some()
    })
    .await;
    let after = document().await;
    let pod = "io.k8s.api.core.v1.Pod";
    let renamed = format!("{pod}_v2");
    let (old, new) = (&before["definitions"], &after["definitions"]);
    assert_eq!(new[pod], old[pod], "a server replaced a built-in type");
    assert_eq!(new[&renamed], json!({"type": "string"}));
    let reference = &new["Flunder"]["properties"]["pod"]["$ref"];
    assert_eq!(reference, &format!("#/definitions/{renamed}"));
    assert_eq!(
        after["paths"]["/api/v1/pods"],
        before["paths"]["/api/v1/pods"]
    );
    let accept = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let binary = admin
        .clone()
        .with_header("accept", accept)
        .get("/openapi/v2")
        .await
        .expect_success();
    let has_path = binary
        .body
        .windows(path.len())
        .any(|part| part == path.as_bytes());
    assert!(has_path, "the protobuf form lacks the path");
    let object = format!("{API_SERVICES}/v1.ext.example.com");
    admin.delete(&object).await.expect_success();
    wait_for("still in the document", || async {
        document().await == before
    })
    .await;
}

/// Returns how aggregated discovery marks the remote version.
async fn read_freshness(admin: &Caller) -> Value {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let accept = [("accept", accept)];
    let reply = admin.send(Method::GET, "/apis", &accept, "").await;
    let document = reply.unwrap().expect_success().json();
    let mut groups = document["items"].as_array().unwrap().iter();
    let group = groups.find(|group| group["metadata"]["name"] == "ext.example.com");
    group.map_or(Value::Null, |group| {
        group["versions"][0]["freshness"].clone()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_not_available_is_not_called() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    let admin = plane.admin();
    // Without its Service.
    let object = server.api_service();
    admin.post(API_SERVICES, &object).await.expect_success();
    let path = format!("{API_SERVICES}/v1.ext.example.com");
    let (admin, path) = (&admin, &path);
    wait_for("no condition", || async move {
        let found = admin.get(path).await.json();
        found["status"]["conditions"][0]["reason"] == "ServiceNotFound"
    })
    .await;
    let refused = admin.get(FLUNDERS).await.expect_status(503);
    assert_eq!(refused.text().trim(), "service unavailable");
    assert!(server.received().is_empty());
    wait_for("not stale", || async move {
        read_freshness(admin).await == "Stale"
    })
    .await;
    // It is called as soon as the Service and its endpoint exist.
    server.create_service(&plane).await;
    wait_for("still stale", || async move {
        read_freshness(admin).await == "Current"
    })
    .await;
    wait_for("never available", || async move {
        admin.get(FLUNDERS).await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_with_a_certificate_of_another_authority_is_not_called() {
    let plane = start_plane().await;
    let server = ExtensionServer::start(&plane, respond).await;
    let other = ExtensionServer::start(&plane, respond).await;
    server.create_service(&plane).await;
    let admin = plane.admin();
    let object = other.api_service();
    admin.post(API_SERVICES, &object).await.expect_success();
    let path = format!("{API_SERVICES}/v1.ext.example.com");
    let (admin, path) = (&admin, &path);
    wait_for("no condition", || async move {
        let found = admin.get(path).await.json();
        let message = found["status"]["conditions"][0]["message"].to_string();
        message.contains("certificate signed by unknown authority")
    })
    .await;
    admin.get(FLUNDERS).await.expect_status(503);
    assert!(server.received().is_empty());
}
