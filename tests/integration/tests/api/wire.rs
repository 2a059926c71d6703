//! JSON, YAML and protobuf, content negotiation, compression, Table and PartialObjectMetadata.

use flate2::read::GzDecoder;
use http::Method;
use integration_tests::protobuf::{Envelope, MAGIC, read_bytes, write_bytes};
use integration_tests::{Components, ReplyExt, Test, config_map, deployment, pod};
use serde_json::{Value, json};
use std::io::Read as _;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Creates a ConfigMap; returns its path.
async fn create_config_map(test: &Test) -> String {
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    test.core("configmaps/c")
}

fn column_names(table: &Value) -> Vec<&str> {
    let columns = table["columnDefinitions"].as_array().unwrap();
    columns
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn object_has_the_same_fields_in_every_format() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let protobuf = test.admin.get_as(&path, PROTOBUF).await.expect_status(200);
    assert_eq!(protobuf.header("content-type"), PROTOBUF);
    let envelope = Envelope::read(&protobuf.body);
    assert_eq!(
        (envelope.api_version.as_str(), envelope.kind.as_str()),
        ("v1", "ConfigMap")
    );
    assert_eq!(envelope.name(), "c");
    let entry = read_bytes(&envelope.object, 2);
    assert_eq!(
        (read_bytes(&entry, 1), read_bytes(&entry, 2)),
        (b"a".to_vec(), b"1".to_vec())
    );
    let yaml = test.admin.get_as(&path, YAML).await.expect_status(200);
    assert_eq!(yaml.header("content-type"), YAML);
    let text = yaml.text();
    for line in [
        "apiVersion: v1\n",
        "kind: ConfigMap\n",
        "  a: \"1\"\n",
        "  name: c\n",
    ] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
}

#[tokio::test]
async fn object_created_in_protobuf_is_read_in_json() {
    let test = start().await;
    let mut object = write_bytes(1, &write_bytes(1, b"c"));
    let entry = [write_bytes(1, b"k"), write_bytes(2, b"v")].concat();
    object.extend(write_bytes(2, &entry));
    let envelope = Envelope {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        object,
    };
    let path = test.core("configmaps");
    let reply = test.admin.post_as(&path, PROTOBUF, envelope.write()).await;
    assert_eq!(reply.expect_status(201).json()["data"], json!({"k": "v"}));
    assert_eq!(
        test.read(&format!("{path}/c")).await["data"],
        json!({"k": "v"})
    );
}

#[tokio::test]
async fn protobuf_body_without_a_type_takes_that_of_the_path() {
    let test = start().await;
    let envelope = Envelope {
        api_version: String::new(),
        kind: String::new(),
        object: write_bytes(1, &write_bytes(2, b"generated-")),
    };
    let reply = test
        .admin
        .post_as(&test.core("configmaps"), PROTOBUF, envelope.write())
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(object["kind"], "ConfigMap");
    assert!(
        object["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("generated-")
    );
}

#[tokio::test]
async fn protobuf_body_of_another_kind_is_a_bad_request() {
    let test = start().await;
    let envelope = Envelope {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        object: write_bytes(1, &write_bytes(1, b"c")),
    };
    let reply = test
        .admin
        .post_as(&test.core("configmaps"), PROTOBUF, envelope.write())
        .await;
    reply.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn list_in_protobuf_has_every_item() {
    let test = start().await;
    let path = test.core("configmaps");
    for name in ["a", "b"] {
        test.create(&path, &config_map(name)).await;
    }
    let reply = test.admin.get_as(&path, PROTOBUF).await.expect_status(200);
    let envelope = Envelope::read(&reply.body);
    assert_eq!(envelope.kind, "ConfigMapList");
    let names: Vec<Vec<u8>> = integration_tests::protobuf::read_fields(&envelope.object)
        .into_iter()
        .filter_map(|field| match field {
            (2, integration_tests::protobuf::Field::Bytes(item)) => {
                Some(read_bytes(&read_bytes(&item, 1), 1))
            }
            _ => None,
        })
        .collect();
    assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
}

#[tokio::test]
async fn protobuf_watch_is_framed() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let collection = path.trim_end_matches("/c");
    let query = "watch=true&resourceVersion=0&fieldSelector=metadata.name=c";
    let accept = format!("{PROTOBUF};stream=watch");
    let mut watch = test
        .admin
        .watch_as(&format!("{collection}?{query}"), &accept)
        .await;
    assert_eq!(watch.headers["content-type"], accept.as_str());
    let event = watch.frame().await;
    assert_eq!(read_bytes(&event, 1), b"ADDED");
    let envelope = Envelope::read(&read_bytes(&read_bytes(&event, 2), 1));
    assert_eq!(
        (envelope.kind.as_str(), envelope.name()),
        ("ConfigMap", "c".to_owned())
    );
}

#[tokio::test]
async fn failure_is_sent_in_the_accepted_format() {
    let test = start().await;
    let path = test.core("configmaps/none");
    let protobuf = test.admin.get_as(&path, PROTOBUF).await.expect_status(404);
    let envelope = Envelope::read(&protobuf.body);
    assert_eq!(
        (envelope.api_version.as_str(), envelope.kind.as_str()),
        ("v1", "Status")
    );
    let yaml = test.admin.get_as(&path, YAML).await.expect_status(404);
    assert!(yaml.text().contains("kind: Status\n"), "{}", yaml.text());
    assert!(
        yaml.text().contains("reason: NotFound\n"),
        "{}",
        yaml.text()
    );
}

#[tokio::test]
async fn preferred_format_is_sent() {
    let test = start().await;
    let path = create_config_map(&test).await;
    for (accept, expected) in [
        (format!("{PROTOBUF};q=0.1,{JSON};q=0.9"), JSON),
        (format!("{JSON};q=0.1,{PROTOBUF};q=0.9"), PROTOBUF),
        (format!("{PROTOBUF},{JSON}"), PROTOBUF),
        (format!("text/html,{YAML};q=0.3"), YAML),
        ("*/*".to_owned(), JSON),
        ("application/*".to_owned(), JSON),
        (String::new(), JSON),
    ] {
        let reply = test.admin.get_as(&path, &accept).await.expect_status(200);
        let media_type = reply
            .header("content-type")
            .split(';')
            .next()
            .unwrap_or_default();
        assert_eq!(media_type, expected, "Accept: {accept}");
    }
}

#[tokio::test]
async fn format_that_is_not_served_is_not_acceptable() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let reply = test.admin.get_as(&path, "text/html").await;
    reply.expect_failure(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    );
}

#[tokio::test]
async fn json_is_indented_on_request() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let indented = |text: &str| text.contains("\n  \"kind\": \"ConfigMap\"");
    assert!(indented(
        &test.admin.get(&format!("{path}?pretty=true")).await.text()
    ));
    assert!(!indented(&test.admin.get(&path).await.text()));
    let curl = test.admin.with_header("user-agent", "curl/8.0");
    assert!(indented(&curl.get(&path).await.text()));
    assert!(!indented(
        &curl.get(&format!("{path}?pretty=false")).await.text()
    ));
}

#[tokio::test]
async fn yaml_body_is_read() {
    let test = start().await;
    let body = "# a comment\nmetadata:\n  name: c\n  labels: {a: 'yes', b: \"on\"}\ndata:\n  text: |\n    line one\n    \
                line two\n  folded: >-\n    a\n    b\n";
    let reply = test
        .admin
        .post_as(&test.core("configmaps"), YAML, body)
        .await;
    let object = reply.expect_status(201).json();
    assert_eq!(object["metadata"]["labels"], json!({"a": "yes", "b": "on"}));
    assert_eq!(
        object["data"],
        json!({"text": "line one\nline two\n", "folded": "a b"})
    );
}

#[tokio::test]
async fn yaml_value_of_a_wrong_type_is_a_bad_request() {
    let test = start().await;
    let body = "metadata: {name: c}\ndata: {a: true}\n";
    let reply = test
        .admin
        .post_as(&test.core("configmaps"), YAML, body)
        .await;
    let status = reply.expect_reason(400, "BadRequest");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains(
            "json: cannot unmarshal bool into Go struct field ConfigMap.data of type string"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn update_in_yaml_replaces_the_object() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let text = test
        .admin
        .get_as(&path, YAML)
        .await
        .text()
        .replace("a: \"1\"", "a: \"2\"");
    let headers = [("content-type", YAML)];
    let reply = test.admin.send(Method::PUT, &path, &headers, text).await;
    assert_eq!(reply.expect_status(200).json()["data"], json!({"a": "2"}));
}

#[tokio::test]
async fn large_response_is_compressed_on_request() {
    let test = start().await;
    let path = test.core("configmaps");
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(60_000)}});
        test.create(&path, &object).await;
    }
    let gzip = test.admin.with_header("accept-encoding", "gzip");
    let reply = gzip.get(&path).await.expect_status(200);
    assert_eq!(reply.header("content-encoding"), "gzip");
    assert!(
        reply.header("vary").contains("Accept-Encoding"),
        "{}",
        reply.header("vary")
    );
    assert!(reply.body.len() < 50_000, "{}", reply.body.len());
    let mut text = String::new();
    GzDecoder::new(&reply.body[..])
        .read_to_string(&mut text)
        .unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn small_response_is_not_compressed() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let gzip = test.admin.with_header("accept-encoding", "gzip");
    let reply = gzip.get(&path).await;
    assert_eq!(reply.header("content-encoding"), "");
    assert_eq!(reply.json()["kind"], "ConfigMap");
}

#[tokio::test]
async fn partial_metadata_has_metadata_only() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let whole = test.read(&path).await;
    let partial = test
        .admin
        .get_as(&path, PARTIAL)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        partial,
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]})
    );
}

#[tokio::test]
async fn list_of_partial_metadata_has_typed_items() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let collection = path.trim_end_matches("/c");
    let list = test
        .admin
        .get_as(collection, PARTIAL_LIST)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (
            &json!("PartialObjectMetadataList"),
            &json!("meta.k8s.io/v1")
        )
    );
    let item = &list["items"][0];
    assert_eq!(
        (&item["kind"], &item["metadata"]["name"], item.get("data")),
        (&json!("PartialObjectMetadata"), &json!("c"), None)
    );
    let protobuf = PARTIAL_LIST.replace(JSON, PROTOBUF);
    let reply = test
        .admin
        .get_as(collection, &protobuf)
        .await
        .expect_status(200);
    assert!(reply.body.starts_with(MAGIC));
    let envelope = Envelope::read(&reply.body);
    assert_eq!(
        (envelope.api_version.as_str(), envelope.kind.as_str()),
        ("meta.k8s.io/v1", "PartialObjectMetadataList")
    );
}

#[tokio::test]
async fn partial_metadata_is_watched() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let query = "watch=true&resourceVersion=0&fieldSelector=metadata.name=c";
    let url = format!("{}?{query}", path.trim_end_matches("/c"));
    let (kind, object) = test.admin.watch_as(&url, PARTIAL).await.event().await;
    assert_eq!(kind, "ADDED");
    assert_eq!(object["kind"], "PartialObjectMetadata");
    assert_eq!(object.get("data"), None);
}

#[tokio::test]
async fn partial_metadata_is_the_response_to_a_patch() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let headers = [
        ("content-type", "application/merge-patch+json"),
        ("accept", PARTIAL),
    ];
    let patch = json!({"metadata": {"labels": {"p": "q"}}}).to_string();
    let reply = test.admin.send(Method::PATCH, &path, &headers, patch).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["kind"], "PartialObjectMetadata");
    assert_eq!(object["metadata"]["labels"], json!({"p": "q"}));
}

#[tokio::test]
async fn table_of_config_maps_has_their_columns() {
    let test = start().await;
    let path = create_config_map(&test).await;
    let table = test
        .admin
        .get_as(&path, TABLE)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(column_names(&table), ["Name", "Data", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(
        (&row["cells"][0], &row["cells"][1]),
        (&json!("c"), &json!(1))
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn table_of_pods_has_wide_columns_of_lower_priority() {
    let test = start().await;
    test.create(&test.core("pods"), &pod("p")).await;
    let table = test
        .admin
        .get_as(&test.core("pods"), TABLE)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        column_names(&table),
        [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP",
            "Node",
            "Nominated Node",
            "Readiness Gates"
        ]
    );
    let priorities: Vec<u64> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["priority"].as_u64().unwrap())
        .collect();
    assert_eq!(priorities, [0, 0, 0, 0, 0, 1, 1, 1, 1]);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (&cells[0], &cells[1], &cells[2], &cells[3]),
        (&json!("p"), &json!("0/1"), &json!("Pending"), &json!("0"))
    );
    assert_eq!(cells[6], "<none>");
}

#[tokio::test]
async fn table_of_deployments_counts_replicas() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &deployment("d", 3)).await;
    let table = test
        .admin
        .get_as(&path, TABLE)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        column_names(&table),
        [
            "Name",
            "Ready",
            "Up-to-date",
            "Available",
            "Age",
            "Containers",
            "Images",
            "Selector"
        ]
    );
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        (
            &cells[1], &cells[2], &cells[3], &cells[5], &cells[6], &cells[7]
        ),
        (
            &json!("0/3"),
            &json!(0),
            &json!(0),
            &json!("c"),
            &json!("example.com/c:1"),
            &json!("app=d")
        )
    );
}

#[tokio::test]
async fn rows_of_a_table_include_the_requested_object() {
    let test = start().await;
    let path = create_config_map(&test).await;
    for (include, kind) in [
        ("Object", Some("ConfigMap")),
        ("Metadata", Some("PartialObjectMetadata")),
        ("None", None),
    ] {
        let reply = test
            .admin
            .get_as(&format!("{path}?includeObject={include}"), TABLE)
            .await;
        let table = reply.expect_status(200).json();
        assert_eq!(
            table["rows"][0]["object"]["kind"].as_str(),
            kind,
            "{include}"
        );
    }
    let reply = test
        .admin
        .get_as(&format!("{path}?includeObject=Bogus"), TABLE)
        .await;
    reply.expect_reason(400, "BadRequest");
}

#[tokio::test]
async fn watch_of_tables_has_the_columns_in_its_first_event() {
    let test = start().await;
    let path = test.core("configmaps");
    for name in ["a", "b"] {
        test.create(&path, &config_map(name)).await;
    }
    let query = "watch=true&resourceVersion=0&labelSelector=!none";
    let mut watch = test.admin.watch_as(&format!("{path}?{query}"), TABLE).await;
    let (_, first) = watch.event().await;
    assert_eq!(first["kind"], "Table");
    assert_eq!(column_names(&first), ["Name", "Data", "Age"]);
    assert_eq!(first["rows"].as_array().unwrap().len(), 1);
    let (_, second) = watch.event().await;
    let columns = second["columnDefinitions"].as_array();
    assert!(columns.is_none_or(Vec::is_empty), "{second}");
}
