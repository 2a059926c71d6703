//! Malformed, truncated and mutated input: every decoder returns, and no decoder panics.
#![allow(clippy::unwrap_used, missing_docs)]

use api_codec::transcode::{TypeMeta, check_member, write_json};
use api_codec::{DecodeError, Strictness, cbor, envelope, json, list, proto, watch, yaml};
use api_schema::{Message, schema};
use serde_json::{Value, json as tree};

fn message(name: &str) -> &'static Message {
    schema().message(name).unwrap()
}

fn pod() -> &'static Message {
    message("k8s.io.api.core.v1.Pod")
}

fn object() -> Value {
    tree!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a": "b"},
            "creationTimestamp": "2024-01-02T03:04:05Z"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1500m"}},
            "livenessProbe": {"httpGet": {"port": "http"}}}], "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}})
}

/// Returns the object with the members that Go always writes.
fn canonical() -> Value {
    json::check(pod(), object()).unwrap().0
}

/// A generator of the numbers that select mutations; the seed is printed by a failing test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Returns `bytes` with one byte changed, removed or inserted.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let at = random.below(out.len());
    let byte = random.below(256) as u8;
    match random.below(3) {
        0 => out[at] = byte,
        1 => drop(out.remove(at)),
        _ => out.insert(at, byte),
    }
    out
}

#[test]
fn protobuf_round_trip_returns_the_same_tree() {
    let bytes = proto::encode_object(pod(), &canonical());
    assert_eq!(proto::decode_object(pod(), &bytes).unwrap(), canonical());
}

#[test]
fn yaml_round_trip_returns_the_same_tree() {
    let text = yaml::encode(&canonical());
    let (value, problems) = yaml::decode(pod(), text.as_bytes(), Strictness::Strict).unwrap();
    assert_eq!((value, problems), (canonical(), vec![]));
}

#[test]
fn json_round_trip_returns_the_same_tree() {
    let bytes = json::encode(pod(), &canonical());
    let (value, problems) = json::decode(pod(), &bytes, Strictness::Strict).unwrap();
    assert_eq!((value, problems), (canonical(), vec![]));
}

#[test]
fn truncated_json_is_a_syntax_error() {
    let bytes = json::encode(pod(), &canonical());
    for end in 0..bytes.len() {
        let outcome = json::decode(pod(), &bytes[..end], Strictness::Warn);
        assert!(
            matches!(outcome, Err(DecodeError::Syntax(_))),
            "{end}: {outcome:?}"
        );
    }
}

#[test]
fn truncated_envelope_is_an_error_or_a_shorter_object() {
    let bytes = proto::encode_object(pod(), &canonical());
    for end in 0..bytes.len() {
        if let Ok(value) = proto::decode_object(pod(), &bytes[..end]) {
            assert_ne!(value, Value::Null, "{end}");
        }
    }
    assert!(proto::decode_object(pod(), &bytes[..3]).is_err());
}

#[test]
fn mutated_protobuf_never_panics() {
    let bytes = proto::encode_object(pod(), &canonical());
    let mut random = Random(1);
    for _ in 0..4000 {
        let mutated = mutate(&bytes, &mut random);
        if let Ok(value) = proto::decode_object(pod(), &mutated) {
            // A decoded value can be encoded again.
            let _ = proto::encode_object(pod(), &value);
            let _ = json::encode(pod(), &value);
        }
    }
}

#[test]
fn mutated_json_never_panics() {
    let bytes = json::encode(pod(), &canonical());
    let mut random = Random(2);
    for _ in 0..4000 {
        let mutated = mutate(&bytes, &mut random);
        let _ = json::decode(pod(), &mutated, Strictness::Strict);
        let _ = json::parse(&mutated);
    }
}

#[test]
fn truncated_cbor_is_a_syntax_error() {
    let bytes = cbor::mark(&cbor::encode(pod(), &canonical()));
    for end in 0..bytes.len() {
        let outcome = cbor::decode(pod(), &bytes[..end], Strictness::Warn);
        assert!(
            matches!(outcome, Err(DecodeError::Syntax(_))),
            "{end}: {outcome:?}"
        );
    }
}

#[test]
fn mutated_cbor_never_panics() {
    let bytes = cbor::mark(&cbor::encode(pod(), &canonical()));
    let mut random = Random(4);
    for _ in 0..4000 {
        let mutated = mutate(&bytes, &mut random);
        let _ = cbor::decode(pod(), &mutated, Strictness::Strict);
        if let Ok(value) = cbor::parse(&mutated) {
            let again = cbor::encode_value(&value);
            assert_eq!(cbor::parse(&again).as_ref(), Ok(&value), "{mutated:02x?}");
            // Members that are split and joined again are the same map.
            let _ = list::cbor("v1", "PodList", &list::ListMeta::default(), &[again], true);
        }
    }
}

#[test]
fn mutated_yaml_never_panics() {
    let text = yaml::encode(&canonical());
    let mut random = Random(3);
    for _ in 0..1000 {
        let _ = yaml::decode(
            pod(),
            &mutate(text.as_bytes(), &mut random),
            Strictness::Strict,
        );
    }
}

#[test]
fn bytes_without_the_magic_are_no_object() {
    let error = envelope::unwrap(b"{}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "provided data does not appear to be a protobuf message"
    );
}

#[test]
fn length_beyond_the_end_is_unexpected_eof() {
    // Field 2 (spec) claims more bytes than follow.
    let error = proto::decode(pod(), b"\x12\x7f\x00").unwrap_err();
    assert_eq!(error.to_string(), "unexpected EOF");
}

#[test]
fn length_of_2_to_the_63_does_not_allocate() {
    let bytes = b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert!(proto::decode(pod(), bytes).is_err());
}

#[test]
fn varint_of_more_than_ten_bytes_is_an_overflow() {
    let error = proto::decode(pod(), &[0xff; 16]).unwrap_err();
    assert_eq!(error.to_string(), "proto: integer overflow");
}

#[test]
fn field_zero_and_unknown_wire_types_are_illegal() {
    assert!(proto::decode(pod(), b"\x02\x00").is_err());
    assert!(proto::decode(pod(), b"\x0f\x00").is_err());
}

#[test]
fn unknown_protobuf_fields_are_skipped() {
    let mut bytes = proto::encode(pod(), &canonical());
    // Field 1000 as varint, bytes, fixed64 and fixed32, as a newer release might send them.
    bytes.extend(b"\xc0\x3e\x01");
    bytes.extend(b"\xc2\x3e\x02ab");
    bytes.extend(b"\xc1\x3e12345678");
    bytes.extend(b"\xc5\x3e1234");
    let mut expected = canonical();
    let map = expected.as_object_mut().unwrap();
    map.remove("kind");
    map.remove("apiVersion");
    assert_eq!(proto::decode(pod(), &bytes).unwrap(), expected);
}

#[test]
fn deep_protobuf_is_rejected() {
    let schema =
        message("k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps");
    let not = schema.field("not").unwrap().number;
    let mut bytes: Vec<u8> = Vec::new();
    for _ in 0..400 {
        let mut outer = Vec::new();
        proto::wire::write_bytes(not, &bytes, &mut outer);
        bytes = outer;
    }
    assert!(matches!(
        proto::decode(schema, &bytes),
        Err(DecodeError::TooDeep(_))
    ));
}

#[test]
fn deep_json_is_rejected() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(matches!(
        json::parse(deep.as_bytes()),
        Err(DecodeError::TooDeep(_))
    ));
}

#[test]
fn invalid_utf8_becomes_the_replacement_character() {
    let value = json::parse(b"{\"a\":\"\xff\"}").unwrap();
    assert_eq!(value, tree!({"a": "\u{fffd}"}));
}

#[test]
fn trailing_bytes_after_the_object_are_an_error() {
    assert!(json::decode(pod(), b"{} {}", Strictness::Ignore).is_err());
    assert!(json::decode(pod(), b"{}\n", Strictness::Ignore).is_ok());
}

#[test]
fn quantity_in_a_body_is_written_in_canonical_form() {
    let body =
        br#"{"spec":{"containers":[{"resources":{"limits":{"cpu":0.5,"memory":"1024Mi"}}}]}}"#;
    let (value, _) = json::decode(pod(), body, Strictness::Strict).unwrap();
    let limits = value
        .pointer("/spec/containers/0/resources/limits")
        .unwrap();
    assert_eq!(limits, &tree!({"cpu": "500m", "memory": "1Gi"}));
}

#[test]
fn quantity_that_is_none_is_rejected_with_upstreams_message() {
    let body = br#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1x"}}}]}}"#;
    let error = json::decode(pod(), body, Strictness::Strict)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("quantities must match the regular expression"),
        "{error}"
    );
}

#[test]
fn int_or_string_keeps_its_type() {
    for port in [tree!(80), tree!("http")] {
        let probe =
            tree!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": port}}}]}});
        let bytes = proto::encode(pod(), &json::check(pod(), probe).unwrap().0);
        let value = proto::decode(pod(), &bytes).unwrap();
        let at = "/spec/containers/0/livenessProbe/httpGet/port";
        assert_eq!(value.pointer(at), Some(&port));
    }
}

#[test]
fn binary_data_is_base64_in_json_and_bytes_in_protobuf() {
    let secret = message("k8s.io.api.core.v1.Secret");
    let value = json::check(secret, tree!({"data": {"k": "AAEC"}}))
        .unwrap()
        .0;
    let bytes = proto::encode(secret, &value);
    assert!(bytes.windows(3).any(|window| window == [0, 1, 2]));
    assert_eq!(
        proto::decode(secret, &bytes).unwrap()["data"],
        tree!({"k": "AAEC"})
    );
    assert!(json::decode(secret, br#"{"data":{"k":"!"}}"#, Strictness::Warn).is_err());
}

#[test]
fn empty_list_of_items_is_a_list_and_not_null() {
    let meta = list::ListMeta::default();
    let bytes = list::json("v1", "PodList", &meta, [], true);
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(value["items"], tree!([]));
    assert_eq!(value["metadata"], tree!({}));
}

#[test]
fn list_metadata_names_the_next_page() {
    let meta = list::ListMeta {
        resource_version: "7".into(),
        continue_token: "t\"".into(),
        remaining_item_count: None,
    };
    let bytes = list::json("v1", "PodList", &meta, [], true);
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        value["metadata"],
        tree!({"resourceVersion": "7", "continue": "t\""})
    );
}

#[test]
fn watch_frame_has_the_length_of_the_event() {
    let object = vec![b'a'; 300];
    let frame = watch::proto_frame("MODIFIED", &object);
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(length as usize, frame.len() - 4);
}

/// An object with repeated and packed fields, maps, embedded messages and JSON inside.
fn objects() -> Vec<(&'static Message, Value)> {
    let crd = message(
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    );
    let definition = tree!({"metadata": {"name": "a.b"}, "spec": {"group": "b", "scope": "Cluster", "names": {"plural": "a", "kind": "A"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "default": {"b": 1, "a": ["<"]}, "enum": [1.5, "x", null], "additionalProperties": false,
            "items": {"type": "string"}, "maximum": 0.5, "properties": {"x": {"maximum": 0}}}}}]}});
    let mut pod_with_owner = object();
    pod_with_owner["metadata"]["managedFields"] = tree!([{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
        "time": "2024-01-02T03:04:05Z", "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "k:{\"a\":1}": {}}}}}]);
    let review = message("k8s.io.api.authorization.v1.SubjectAccessReview");
    let event = message("k8s.io.api.events.v1.Event");
    vec![
        (pod(), pod_with_owner),
        (crd, definition),
        (
            review,
            tree!({"spec": {"user": "u", "extra": {"a": ["1", "2"], "": []}}}),
        ),
        (
            event,
            tree!({"eventTime": "2024-01-02T03:04:05.000006Z", "series": {"count": 2}}),
        ),
    ]
}

#[test]
fn json_written_from_a_mutated_message_is_that_of_its_tree() {
    let mut random = Random(11);
    let type_meta = TypeMeta {
        kind: "K",
        api_version: "g/v1",
    };
    for (message, object) in objects() {
        let bytes = proto::encode(message, &json::check(message, object).unwrap().0);
        for step in 0..20_000 {
            let mut mutated = mutate(&bytes, &mut random);
            if random.below(4) == 0 {
                // Repeated fields, and fields in another order.
                mutated.extend_from_slice(&bytes);
            }
            let mut written = Vec::new();
            let outcome = write_json(message, &mutated, type_meta, &mut written);
            let Ok(mut tree) = proto::decode(message, &mutated) else {
                continue;
            };
            tree["kind"] = "K".into();
            tree["apiVersion"] = "g/v1".into();
            let expected = json::encode(message, &tree);
            assert!(outcome.is_ok(), "{} {step}: {outcome:?}", message.name);
            assert_eq!(
                String::from_utf8_lossy(&written),
                String::from_utf8_lossy(&expected),
                "{} {step}",
                message.name
            );
        }
    }
}

/// Replaces, removes or adds a value somewhere in a tree.
fn mutate_tree(value: &mut Value, random: &mut Random) {
    let others = [
        tree!(null),
        tree!(0),
        tree!(-1),
        tree!(5_000_000_000_i64),
        tree!(1.0),
        tree!(0.5),
        tree!(""),
        tree!("x"),
        tree!("1000m"),
        tree!("aQ=="),
        tree!("2024-01-02T03:04:05Z"),
        tree!("2024-01-02T03:04:05.000006+01:00"),
        tree!(true),
        tree!(false),
        tree!([]),
        tree!([null]),
        tree!({}),
        tree!({"a": null}),
    ];
    let stays = random.below(4) > 0;
    match value {
        Value::Object(map) if stays && !map.is_empty() => {
            let at = random.below(map.len());
            let name = map.keys().nth(at).unwrap().clone();
            match random.below(12) {
                0 => drop(map.remove(&name)),
                1 => drop(map.insert("unknown".into(), tree!(1))),
                _ => mutate_tree(map.get_mut(&name).unwrap(), random),
            }
        }
        Value::Array(list) if stays && !list.is_empty() => {
            let at = random.below(list.len());
            mutate_tree(&mut list[at], random);
        }
        other => *other = others[random.below(others.len())].clone(),
    }
}

#[test]
fn changed_tree_is_checked_like_its_text() {
    let mut random = Random(13);
    let mut unchanged = 0;
    for (message, object) in objects() {
        let canonical = json::check(message, object).unwrap().0;
        for step in 0..5_000 {
            let mut mutated = canonical.clone();
            for _ in 0..random.below(3) {
                mutate_tree(&mut mutated, &mut random);
            }
            let text = mutated.to_string();
            let expected = json::decode(message, text.as_bytes(), Strictness::Strict);
            let checked = json::check(message, mutated.clone());
            assert_eq!(checked, expected, "{} {step} {text}", message.name);
            let mut changed = mutated.clone();
            json::canonicalize(message, &mut changed);
            let (expected, _) = expected.unwrap_or_else(|_| (mutated.clone(), Vec::new()));
            assert_eq!(changed, expected, "{} {step} {text}", message.name);
            unchanged += usize::from(changed == mutated);
        }
    }
    assert!(unchanged > 1_000, "{unchanged}");
}

#[test]
fn managed_fields_and_the_rest_are_checked_as_the_whole() {
    let mut random = Random(12);
    let type_meta = TypeMeta {
        kind: "Pod",
        api_version: "v1",
    };
    let rest = proto::Part::without_managed_fields(pod());
    let mut broken = [0, 0];
    for (message, object) in objects().into_iter().take(1) {
        let bytes = proto::encode(message, &json::check(message, object).unwrap().0);
        for step in 0..20_000 {
            let mutated = mutate(&bytes, &mut random);
            let whole = write_json(message, &mutated, type_meta, &mut Vec::new());
            let fields = check_member(message, &mutated, &["metadata", "managedFields"]);
            let others = proto::decode_part(message, &mutated, &rest);
            if whole.is_err() {
                assert!(fields.is_err() || others.is_err(), "{step}: {whole:?}");
            }
            if fields.is_err() {
                assert!(whole.is_err(), "{step}: {fields:?}");
            }
            broken[0] += usize::from(fields.is_err() && others.is_ok());
            broken[1] += usize::from(fields.is_ok() && others.is_err());
        }
    }
    assert!(broken.iter().all(|count| *count > 0), "{broken:?}");
}
