//! Messages about bodies that do not match their type.
#![allow(clippy::unwrap_used, missing_docs)]

use api_codec::{DecodeError, Strictness, json, proto, yaml};
use api_schema::{Message, schema};
use serde_json::json as tree;

fn message(name: &str) -> &'static Message {
    schema().message(name).unwrap()
}

fn config_map() -> &'static Message {
    message("k8s.io.api.core.v1.ConfigMap")
}

fn deployment() -> &'static Message {
    message("k8s.io.api.apps.v1.Deployment")
}

fn problems(found: Vec<api_codec::Problem>) -> Vec<String> {
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_and_duplicate_fields_in_the_order_of_the_document() {
    let body = br#"{"metadata":{"name":"x","lables":{"a":"b"}},"data":{"a":"1","a":"2"},"bogus":1,"bogus":2,"immutable":false}"#;
    let (value, found) = json::decode(config_map(), body, Strictness::Strict).unwrap();
    assert_eq!(
        problems(found),
        [
            "unknown field \"metadata.lables\"",
            "duplicate field \"data.a\"",
            "unknown field \"bogus\""
        ]
    );
    assert_eq!(
        value,
        tree!({"metadata": {"name": "x"}, "data": {"a": "2"}, "immutable": false})
    );
    let (_, found) = json::decode(config_map(), body, Strictness::Ignore).unwrap();
    assert!(found.is_empty());
}

#[test]
fn paths_have_indexes_and_yaml_has_lines() {
    let body = "spec:\n  replica: 1\n  replicas: 0\n  replicas: 0\n  template:\n    spec:\n      containers:\n      - name: c\n        imagePullPolice: Always\n        ports: [{containerPort: 80, hostsPort: 1}]\n";
    let (_, found) = yaml::decode(deployment(), body.as_bytes(), Strictness::Strict).unwrap();
    let mut found = problems(found);
    found.sort();
    assert_eq!(
        found,
        [
            "line 4: key \"replicas\" already set in map",
            "unknown field \"spec.replica\"",
            "unknown field \"spec.template.spec.containers[0].imagePullPolice\"",
            "unknown field \"spec.template.spec.containers[0].ports[0].hostsPort\"",
        ]
    );
}

#[test]
fn wrong_type_is_reported_with_the_message_of_go() {
    let check = |message: &'static Message, body: &str, want: &str| match json::decode(
        message,
        body.as_bytes(),
        Strictness::Strict,
    ) {
        Err(error) => assert_eq!(error.to_string(), want, "{body}"),
        Ok(value) => panic!("{body} became {value:?}"),
    };
    check(
        deployment(),
        r#"{"spec":{"replicas":"many"}}"#,
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check(
        deployment(),
        r#"{"spec":{"template":{"spec":{"containers":[{"name":true}]}}}}"#,
        "json: cannot unmarshal bool into Go struct field Container.spec.template.spec.containers.name of type string",
    );
    check(
        deployment(),
        r#"{"spec":{"replicas":1.5}}"#,
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    check(
        config_map(),
        r#"{"data":{"a.b":1}}"#,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    check(
        config_map(),
        r#"["metadata"]"#,
        "json: cannot unmarshal array into Go value of type v1.ConfigMap",
    );
    check(config_map(), "{", "unexpected end of JSON input");
    check(config_map(), "", "unexpected end of JSON input");
}

#[test]
fn hostile_bodies_are_rejected() {
    let deep = format!(
        "{{\"data\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let refused = |body: &[u8]| json::decode(config_map(), body, Strictness::Strict).unwrap_err();
    assert!(matches!(
        refused(deep.as_bytes()),
        DecodeError::Type(_) | DecodeError::TooDeep(_)
    ));
    let deep = format!(
        "{{\"bogus\":{}1{}}}",
        "{\"a\":".repeat(50_000),
        "}".repeat(50_000)
    );
    let _ = json::decode(config_map(), deep.as_bytes(), Strictness::Strict);
    refused(br#"{"metadata":{"name":"x","generation":1e999}}"#);
    refused(br#"{"metadata":{"name":"x"}} trailing"#);
    let (value, _) = json::decode(
        config_map(),
        b"{\"metadata\":{\"name\":\"\xff\"}}",
        Strictness::Strict,
    )
    .unwrap();
    assert_eq!(value["metadata"]["name"], "\u{fffd}");
    for bytes in [
        &b"\xff\xff\xff"[..],
        b"\x0a\xff",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0b\x0b\x0b",
    ] {
        assert!(proto::decode(config_map(), bytes).is_err(), "{bytes:?}");
    }
    assert!(proto::decode_object(config_map(), b"{}").is_err());
    // A deeply nested schema.
    let crd = message("k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let mut nested = Vec::new();
    for _ in 0..2000 {
        let mut outer = vec![0xda, 0x01];
        let mut length = nested.len();
        while length >= 0x80 {
            outer.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend_from_slice(&nested);
        nested = outer;
    }
    assert!(matches!(
        proto::decode(crd, &nested),
        Err(DecodeError::TooDeep(_) | DecodeError::Type(_))
    ));
}

#[test]
fn nulls_and_empty_values_are_not_kept() {
    let body = br#"{"metadata":{"name":"x","labels":null,"creationTimestamp":null,"ownerReferences":[]},"data":null,"binaryData":{},"immutable":null}"#;
    let (value, found) = json::decode(config_map(), body, Strictness::Strict).unwrap();
    assert_eq!(
        (value, found),
        (tree!({"metadata": {"name": "x"}}), Vec::new())
    );
    let body = br#"{"spec":{"replicas":0,"template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1000m","memory":1024}}}]}},"strategy":null}}"#;
    let (value, _) = json::decode(deployment(), body, Strictness::Strict).unwrap();
    assert_eq!(
        value,
        tree!({"metadata": {}, "status": {}, "spec": {"replicas": 0, "strategy": {}, "template": {"metadata": {}, "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]}}}})
    );
    let text = String::from_utf8(json::encode(deployment(), &value)).unwrap();
    assert_eq!(
        text,
        r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"template":{"metadata":{},"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1024"}}}]}},"strategy":{}},"status":{}}"#
    );
}
