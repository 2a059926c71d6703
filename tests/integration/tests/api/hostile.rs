//! Malformed and oversized requests: a 4xx with a Status, and the server keeps serving.

use bytes::Bytes;
use http::Method;
use integration_tests::{Components, PatchType, Reply, ReplyExt, Test, config_map};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const MIB: usize = 1024 * 1024;

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Posts a body as a ConfigMap, and checks that the server still serves afterwards.
async fn post(test: &Test, media_type: &str, body: impl Into<Bytes>) -> Reply {
    let reply = test
        .admin
        .post_as(&test.core("configmaps"), media_type, body)
        .await;
    check_serves(test).await;
    reply
}

async fn check_serves(test: &Test) {
    assert_eq!(test.admin.get("/livez").await.text(), "ok");
}

/// Sends bytes over TLS and HTTP/1.1; returns what the server sends until it closes the connection,
/// or for three seconds.
async fn exchange_bytes(test: &Test, request: &[u8]) -> String {
    let mut stream = test.plane().admin().connect().await.unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(request).await;
    let _ = stream.flush().await;
    let mut response = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            response.extend_from_slice(&buffer[..count]);
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(3), read).await;
    check_serves(test).await;
    String::from_utf8_lossy(&response).into_owned()
}

fn status_line(response: &str) -> &str {
    response.lines().next().unwrap_or_default()
}

#[tokio::test]
async fn body_that_is_not_json_is_a_bad_request() {
    let test = start().await;
    for body in [
        "{",
        "nonsense",
        "{\"metadata\":{\"name\":\"x\"}} trailing",
        "{\"metadata\":}",
    ] {
        post(&test, JSON, body)
            .await
            .expect_reason(400, "BadRequest");
    }
    assert_eq!(test.names(&test.core("configmaps")).await, [""; 0]);
}

#[tokio::test]
async fn json_that_is_no_object_is_a_bad_request() {
    let test = start().await;
    for body in ["[\"metadata\"]", "1", "\"text\"", "true"] {
        post(&test, JSON, body)
            .await
            .expect_reason(400, "BadRequest");
    }
}

#[tokio::test]
async fn empty_body_is_a_bad_request() {
    let test = start().await;
    post(&test, JSON, "").await.expect_reason(400, "BadRequest");
    post(&test, "application/vnd.kubernetes.protobuf", "")
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn field_of_a_wrong_type_is_named() {
    let test = start().await;
    let reply = post(&test, JSON, r#"{"metadata":{"name":"x"},"data":{"a":1}}"#).await;
    let status = reply.expect_reason(400, "BadRequest");
    assert_eq!(
        status["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct \
         field ConfigMap.data of type string"
    );
}

#[tokio::test]
async fn deeply_nested_arrays_are_a_bad_request() {
    let test = start().await;
    let body = format!(
        "{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    post(&test, JSON, body)
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn deeply_nested_objects_are_a_bad_request() {
    let test = start().await;
    let body = format!(
        "{{\"metadata\":{{\"name\":\"x\"}},\"data\":{}1{}}}",
        "{\"a\":".repeat(50_000),
        "}".repeat(50_000)
    );
    post(&test, JSON, body)
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn body_above_the_limit_is_too_large() {
    let test = start().await;
    let body = format!(
        "{{\"metadata\":{{\"name\":\"x\"}},\"data\":{{\"a\":\"{}\"}}}}",
        "x".repeat(4 * MIB)
    );
    let reply = post(&test, JSON, body).await;
    reply.expect_failure(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: limit is 3145728",
    );
}

#[tokio::test]
async fn config_map_above_one_mebibyte_is_invalid() {
    let test = start().await;
    let object = json!({"metadata": {"name": "x"}, "data": {"a": "x".repeat(MIB + 1)}});
    let reply = post(&test, JSON, object.to_string()).await;
    let status = reply.expect_causes(&[("[]", "FieldValueTooLong")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"x\" is invalid: []: Too long: may not be more than 1048576 bytes"
    );
}

#[tokio::test]
async fn annotations_above_their_limit_are_invalid() {
    let test = start().await;
    let object = json!({"metadata": {"name": "x", "annotations": {"a": "x".repeat(256 * 1024)}}});
    let reply = post(&test, JSON, object.to_string()).await;
    let status = reply.expect_causes(&[("metadata.annotations", "FieldValueTooLong")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"x\" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes"
    );
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_a_bad_request() {
    let test = start().await;
    let reply = post(&test, JSON, &b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"[..]).await;
    assert!([400, 422].contains(&reply.status), "{}", reply.text());
}

#[tokio::test]
async fn name_with_a_nul_character_is_invalid() {
    let test = start().await;
    let reply = post(&test, JSON, r#"{"metadata":{"name":"a\u0000b"}}"#).await;
    reply.expect_causes(&[("metadata.name", "FieldValueInvalid")]);
}

#[tokio::test]
async fn number_beyond_its_range_is_a_bad_request() {
    let test = start().await;
    let reply = post(
        &test,
        JSON,
        r#"{"metadata":{"name":"x","generation":1e999}}"#,
    )
    .await;
    reply.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn every_invalid_key_is_a_cause() {
    let test = start().await;
    let data: serde_json::Map<_, _> = (0..50)
        .map(|n| (format!("bad key {n}"), json!("")))
        .collect();
    let object = json!({"metadata": {"name": "x"}, "data": data});
    let reply = post(&test, JSON, object.to_string()).await;
    let status = reply.expect_reason(422, "Invalid");
    assert_eq!(status["details"]["causes"].as_array().unwrap().len(), 50);
    assert_eq!(status["details"]["causes"][0]["field"], "data[bad key 0]");
}

#[tokio::test]
async fn yaml_aliases_cannot_multiply() {
    let test = start().await;
    let mut body = String::from("metadata: {name: bomb}\na: &a [x,x,x,x,x,x,x,x,x]\n");
    for (before, after) in ('a'..='h').zip('b'..='i') {
        let aliases = vec![format!("*{before}"); 9].join(",");
        writeln!(body, "{after}: &{after} [{aliases}]").unwrap();
    }
    post(&test, YAML, body)
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn deeply_nested_yaml_is_a_bad_request() {
    let test = start().await;
    let body = format!("metadata: {}{}", "{a: ".repeat(20_000), "}".repeat(20_000));
    post(&test, YAML, body)
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn truncated_yaml_is_a_bad_request() {
    let test = start().await;
    post(&test, YAML, "metadata: {name: x\n")
        .await
        .expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn malformed_protobuf_is_a_bad_request() {
    let test = start().await;
    let protobuf = "application/vnd.kubernetes.protobuf";
    for body in [
        &b"k8s\x00\xff\xff\xff"[..],
        b"{}",
        b"k8s",
        b"k8s\x00\x12\xff\xff\xff\xff\x0f",
    ] {
        post(&test, protobuf, body)
            .await
            .expect_reason(400, "BadRequest");
    }
}

#[tokio::test]
async fn unknown_media_type_is_unsupported() {
    let test = start().await;
    let reply = post(&test, "text/plain", "metadata: {name: x}").await;
    reply.expect_failure(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
    );
}

#[tokio::test]
async fn patch_of_an_unknown_media_type_is_unsupported() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let path = test.core("configmaps/c");
    let headers = [("content-type", "application/json")];
    let reply = test.admin.send(Method::PATCH, &path, &headers, "{}").await;
    reply.expect_failure(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, \
         application/apply-patch+yaml",
    );
}

#[tokio::test]
async fn deeply_nested_merge_patch_is_rejected() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let patch = format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    let headers = [("content-type", "application/merge-patch+json")];
    let path = test.core("configmaps/c");
    let reply = test.admin.send(Method::PATCH, &path, &headers, patch).await;
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    check_serves(&test).await;
    assert_eq!(test.read(&path).await["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn json_patch_of_too_many_operations_is_too_large() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let operations = vec![json!({"op": "test", "path": "/data/a", "value": "1"}); 10_001];
    let path = test.core("configmaps/c");
    let reply = test
        .admin
        .patch(PatchType::Json, &path, &json!(operations))
        .await;
    reply.expect_failure(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
}

#[tokio::test]
async fn paths_with_dots_reach_no_other_resource() {
    let test = start().await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "hidden-value"}});
    test.create(&test.core("secrets"), &secret).await;
    let base = format!("/api/v1/namespaces/{}", test.namespace);
    for tail in [
        "configmaps/../secrets",
        "configmaps/%2e%2e/secrets/s",
        "configmaps/%2e%2e%2fsecrets%2fs",
        "configmaps/.",
        "configmaps/..%5csecrets",
        "configmaps/%252e%252e",
    ] {
        let path = format!("{base}/{tail}");
        let reply = test.admin.get(&path).await;
        assert!(
            (300..500).contains(&reply.status) || reply.text().contains("invalid key"),
            "{path}: {} {}",
            reply.status,
            reply.text()
        );
        assert!(!reply.text().contains("aGlkZGVuLXZhbHVl"), "{path}");
    }
    check_serves(&test).await;
}

#[tokio::test]
async fn names_that_are_parts_of_paths_are_invalid() {
    let test = start().await;
    let path = test.group("rbac.authorization.k8s.io/v1", "roles");
    for (name, rule) in [
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
        ("a/b", "may not contain '/'"),
        ("a%2fb", "may not contain '%'"),
    ] {
        let role = json!({"metadata": {"name": name}, "rules": []});
        let status = test
            .admin
            .post(&path, &role)
            .await
            .expect_causes(&[("metadata.name", "FieldValueInvalid")]);
        assert_eq!(
            status["message"],
            format!(
                "Role.rbac.authorization.k8s.io \"{name}\" is invalid: metadata.name: Invalid value: \"{name}\": {rule}"
            )
        );
    }
}

#[tokio::test]
async fn cluster_scoped_resource_is_not_below_a_namespace() {
    let test = start().await;
    test.admin.get(&test.core("nodes")).await.expect_status(404);
}

#[tokio::test]
async fn long_path_is_rejected() {
    let test = start().await;
    let path = format!("/api/v1/namespaces/{}", "x".repeat(8000));
    let reply = test.admin.get(&path).await;
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    check_serves(&test).await;
}

#[tokio::test]
async fn malformed_numbers_in_the_query_are_a_bad_request() {
    let test = start().await;
    for query in [
        "limit=x",
        "timeoutSeconds=x",
        "watch=1&timeoutSeconds=99999999999999999999",
    ] {
        let path = format!("{}?{query}", test.core("configmaps"));
        test.admin.get(&path).await.expect_reason(400, "BadRequest");
    }
}

#[tokio::test]
async fn thousands_of_query_parameters_are_read() {
    let test = start().await;
    let query: Vec<String> = (0..2000).map(|n| format!("p{n}=x")).collect();
    let path = format!("{}?{}", test.core("configmaps"), query.join("&"));
    let reply = test.admin.get(&path).await;
    assert!([200, 400, 414].contains(&reply.status), "{}", reply.status);
    check_serves(&test).await;
}

#[tokio::test]
async fn header_of_two_mebibytes_is_too_large() {
    let test = start().await;
    let head = format!(
        "GET /version HTTP/1.1\r\nhost: x\r\nx-junk: {}\r\n\r\n",
        "x".repeat(2 * MIB)
    );
    let response = exchange_bytes(&test, head.as_bytes()).await;
    let line = status_line(&response);
    assert!(
        line.is_empty() || line.contains(" 431 ") || line.contains(" 400 "),
        "{line}"
    );
}

#[tokio::test]
async fn malformed_request_line_is_a_bad_request() {
    let test = start().await;
    for head in [
        "GET /version\r\n\r\n",
        "GET  HTTP/1.1\r\nhost: x\r\n\r\n",
        "G\u{0}T /version HTTP/1.1\r\nhost: x\r\n\r\n",
        "\r\n\r\nnonsense\r\n\r\n",
    ] {
        let response = exchange_bytes(&test, head.as_bytes()).await;
        let line = status_line(&response);
        assert!(
            line.is_empty() || line.contains(" 400 "),
            "{head:?}: {line}"
        );
    }
}

#[tokio::test]
async fn request_with_two_lengths_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps");
    let body = config_map("smuggled").to_string();
    for lengths in [
        format!("content-length: {}\r\ncontent-length: 5\r\n", body.len()),
        "content-length: -1\r\n".to_owned(),
    ] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lengths}\r\n{body}"
        );
        let response = exchange_bytes(&test, request.as_bytes()).await;
        let line = status_line(&response);
        assert!(line.is_empty() || line.contains(" 400 "), "{line}");
    }
    test.admin
        .get(&format!("{path}/smuggled"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn truncated_body_creates_nothing() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut stream = test.plane().admin().connect().await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n\
         {{\"metadata\":{{\"name\":\"half\"}}}}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream);
    check_serves(&test).await;
    test.admin
        .get(&format!("{path}/half"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn waiting_connections_do_not_block_others() {
    let test = start().await;
    let admin = test.plane().admin();
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut stream = admin.connect().await.unwrap();
        stream
            .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: x\r\n")
            .await
            .unwrap();
        stream.flush().await.unwrap();
        held.push(stream);
    }
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    drop(held);
}

#[tokio::test]
async fn plain_http_on_the_tls_port_is_not_served() {
    let test = start().await;
    let mut stream = tokio::net::TcpStream::connect(test.plane().api_address())
        .await
        .unwrap();
    stream
        .write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    let read = stream.read_to_end(&mut response);
    let _ = tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&response);
    assert!(!text.contains("gitVersion"), "{text}");
    check_serves(&test).await;
}

#[tokio::test]
async fn unknown_methods_are_not_allowed() {
    let test = start().await;
    for method in ["TRACE", "OPTIONS", "BREW"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let reply = test
            .admin
            .send(method.clone(), "/api/v1/namespaces", &[], "")
            .await;
        assert!(
            (400..500).contains(&reply.status),
            "{method}: {}",
            reply.status
        );
    }
    check_serves(&test).await;
}

#[tokio::test]
async fn error_about_a_secret_does_not_show_its_data() {
    let test = start().await;
    let path = test.core("secrets");
    let marker = "VGhlU2VjcmV0TWFya2Vy";
    for secret in [
        json!({"metadata": {"name": "Bad_Name"}, "data": {"k": marker}}),
        json!({"metadata": {"name": "x"}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": marker}}),
        json!({"metadata": {"name": "x"}, "data": {"bad key": marker}}),
    ] {
        let reply = test.admin.post(&path, &secret).await.expect_status(422);
        let text = reply.text();
        assert!(
            !text.contains(marker) && !text.contains("TheSecretMarker"),
            "{text}"
        );
    }
}
