//! Accept headers: encodings, tables, partial metadata, discovery.

use super::{MAPS, request, start_server};
use api_codec::envelope;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test]
async fn object_is_returned_in_the_accepted_encoding() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let path = format!("{MAPS}/a");
    let get = async |accept: &str| {
        server
            .send(request("GET", &path).header("accept", accept), "")
            .await
    };
    let json = get("application/json").await;
    assert_eq!(json.header("content-type"), "application/json");
    assert_eq!(json.json()["data"]["k"], "v");
    let yaml = get("application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("kind: ConfigMap"), "{}", yaml.text());
    let protobuf = get(PROTOBUF).await;
    assert_eq!(protobuf.header("content-type"), PROTOBUF);
    let frame = envelope::unwrap(&protobuf.body).unwrap();
    assert_eq!((frame.api_version, frame.kind), ("v1", "ConfigMap"));
}

#[tokio::test]
async fn encoding_that_is_not_offered_is_not_acceptable() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    for accept in [
        "text/csv",
        "application/json;q=0",
        "application/json;as=Chart;v=v1;g=meta.k8s.io",
    ] {
        let request = request("GET", &format!("{MAPS}/a")).header("accept", accept);
        let answer = server.send(request, "").await;
        assert_eq!(answer.status(), (406, "NotAcceptable".into()), "{accept}");
    }
}

#[tokio::test]
async fn write_whose_response_is_not_acceptable_stores_nothing() {
    let server = start_server(&[]).await;
    let request = request("POST", MAPS).header("accept", "text/csv");
    let answer = server
        .send(request, super::config_map("a").to_string())
        .await;
    assert_eq!(answer.code, 406);
    assert_eq!(server.etcd.count_requests("txn"), 0);
}

#[tokio::test]
async fn list_is_returned_as_a_table() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let answer = server
        .send(request("GET", MAPS).header("accept", accept), "")
        .await;
    let table = answer.json();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let path = format!("{MAPS}?includeObject=Object");
    let answer = server
        .send(request("GET", &path).header("accept", accept), "")
        .await;
    assert_eq!(answer.json()["rows"][0]["object"]["kind"], "ConfigMap");
    let path = format!("{MAPS}?includeObject=All");
    let answer = server
        .send(request("GET", &path).header("accept", accept), "")
        .await;
    assert_eq!(answer.code, 400);
}

#[tokio::test]
async fn partial_metadata_must_be_requested_in_the_right_plurality() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let accept = |kind: &str| format!("application/json;as={kind};v=v1;g=meta.k8s.io");
    let object = format!("{MAPS}/a");
    for (path, kind, code) in [
        (MAPS, "PartialObjectMetadataList", 200),
        (MAPS, "PartialObjectMetadata", 406),
        (object.as_str(), "PartialObjectMetadata", 200),
        (object.as_str(), "PartialObjectMetadataList", 406),
    ] {
        let answer = server
            .send(request("GET", path).header("accept", accept(kind)), "")
            .await;
        assert_eq!(answer.code, code, "{path} {kind}");
        if code == 200 {
            assert_eq!(answer.json()["kind"], kind);
            assert!(!answer.text().contains("\"data\""), "{}", answer.text());
        }
    }
}

#[tokio::test]
async fn curl_gets_indented_json() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let path = format!("{MAPS}/a");
    let curl = request("GET", &path).header("user-agent", "curl/8.5.0");
    assert!(server.send(curl, "").await.text().starts_with("{\n  \""));
    let path = format!("{MAPS}/a?pretty=false");
    let curl = request("GET", &path).header("user-agent", "curl/8.5.0");
    assert!(server.send(curl, "").await.text().starts_with("{\"kind\""));
    assert!(
        server
            .get(&format!("{MAPS}/a?pretty=true"))
            .await
            .text()
            .starts_with("{\n")
    );
}

#[tokio::test]
async fn large_list_is_compressed_for_clients_that_accept_it() {
    let server = start_server(&[]).await;
    let mut object = super::config_map("a");
    object["data"]["k"] = "x".repeat(200 * 1024).into();
    assert_eq!(server.write("POST", MAPS, object).await.code, 201);
    let packed = server
        .send(request("GET", MAPS).header("accept-encoding", "gzip"), "")
        .await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body.len() < 20 * 1024, "{}", packed.body.len());
    let plain = server.get(MAPS).await;
    assert_eq!(plain.header("content-encoding"), "");
    server.create_map("small").await;
    let path = format!("{MAPS}/small");
    let small = server
        .send(request("GET", &path).header("accept-encoding", "gzip"), "")
        .await;
    assert_eq!(small.header("content-encoding"), "", "not worth it");
}

#[tokio::test]
async fn discovery_is_returned_plain_or_aggregated() {
    let server = start_server(&[]).await;
    assert_eq!(server.get("/api").await.json()["kind"], "APIVersions");
    assert_eq!(server.get("/apis").await.json()["kind"], "APIGroupList");
    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let aggregated = server
        .send(request("GET", "/apis").header("accept", accept), "")
        .await;
    assert_eq!(aggregated.json()["kind"], "APIGroupDiscoveryList");
    let tag = aggregated.header("etag").to_owned();
    let again = request("GET", "/apis")
        .header("accept", accept)
        .header("if-none-match", tag);
    let again = server.send(again, "").await;
    assert_eq!((again.code, again.body.len()), (304, 0));
}

#[tokio::test]
async fn resources_of_a_group_version_are_listed() {
    let server = start_server(&[]).await;
    let list = server.get("/apis/apps/v1").await.json();
    assert_eq!(list["groupVersion"], "apps/v1");
    let resources = list["resources"].as_array().unwrap();
    let scale = resources
        .iter()
        .find(|r| r["name"] == "deployments/scale")
        .unwrap();
    assert_eq!(
        (&scale["kind"], &scale["group"]),
        (&"Scale".into(), &"autoscaling".into())
    );
    assert_eq!(server.get("/apis/apps/v9").await.code, 404);
}

#[tokio::test]
async fn cbor_is_not_spoken_while_its_gate_is_off() {
    let server = start_server(&[]).await;
    server.create_map("a").await;
    let path = format!("{MAPS}/a");
    for accept in ["application/cbor", "application/cbor-seq"] {
        let answer = server
            .send(request("GET", &path).header("accept", accept), "")
            .await;
        assert_eq!(answer.code, 406, "{accept}");
    }
    for (method, path, media_type) in [
        ("POST", MAPS, "application/cbor"),
        ("PUT", &path, "application/cbor"),
        ("PATCH", &path, "application/apply-patch+cbor"),
    ] {
        let request = request(method, path).header("content-type", media_type);
        let answer = server.send(request, "\u{a0}").await;
        assert_eq!(answer.code, 415, "{method} {media_type}");
    }
}
