//! The decoder beside serde_json's.

#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::decoder::ZERO_TIME;
use super::*;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::de::IgnoredAny;
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn null_and_missing_required_fields_decode_as_zero_values() {
    let cases = [
        r#"{"status":{"conditions":[{"type":"X","status":"True","lastTransitionTime":null}]}}"#,
        r#"{"status":{"conditions":[{"type":"X","status":"True"}]}}"#,
    ];
    for case in cases {
        let service: Service = from_slice(case.as_bytes()).unwrap();
        let conditions = service.status.unwrap().conditions.unwrap();
        assert_eq!(conditions[0].type_, "X", "{case}");
        assert_eq!(
            conditions[0].last_transition_time.0.to_string(),
            ZERO_TIME,
            "{case}"
        );
    }
}

#[test]
fn trees_decode_strictly_as_serde_json_decodes_them() {
    for (tree, valid) in [
        (json!({"spec": {"containers": null}}), true),
        (
            json!({"spec": {"containers": [{"name": "c", "command": ["a"]}]}}),
            true,
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "command": [null]}]}}),
            false,
        ),
        (
            json!({"spec": {"securityContext": {"supplementalGroups": [null]}}}),
            false,
        ),
        (json!({"metadata": {"labels": {"a": null}}}), false),
        (json!({"spec": {"containers": 5}}), false),
    ] {
        let decoded = from_tree::<Pod>(&tree);
        assert_eq!(decoded.is_ok(), valid, "{tree}");
        let expected = serde_json::from_value::<Pod>(tree);
        assert_eq!(decoded.ok(), expected.ok());
    }
}

#[test]
fn null_in_an_optional_field_stays_absent() {
    let strange = r#"{"metadata":{"name":"p","labels":null,"creationTimestamp":null},
        "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":null}},"ports":[{"containerPort":null}]}]},
        "status":{"conditions":[{"type":"Ready","status":null,"lastTransitionTime":null}]}}"#;
    let pod: Pod = from_slice(strange.as_bytes()).unwrap();
    assert_eq!(
        (pod.metadata.labels, pod.metadata.creation_timestamp),
        (None, None)
    );
    let container = pod.spec.unwrap().containers.remove(0);
    assert_eq!(container.resources.unwrap().requests.unwrap()["cpu"].0, "0");
    assert_eq!(container.ports.unwrap()[0].container_port, 0);
    assert_eq!(
        pod.status.unwrap().conditions.unwrap()[0].last_transition_time,
        None
    );
}

#[test]
fn value_of_a_wrong_type_is_an_error() {
    assert!(from_slice::<Pod>(br#"{"spec":{"containers":5}}"#).is_err());
    assert!(from_slice::<Pod>(b"no JSON").is_err());
}

/// Documents that decode, or fail, as they do with serde_json.
const DOCUMENTS: &[&str] = &[
    "null",
    "true",
    "false",
    "tru",
    "nul",
    "nulll",
    "0",
    "-0",
    "-1",
    "01",
    "-",
    "1.",
    ".5",
    "1.5",
    "1e3",
    "1E+3",
    "1e-3",
    "1e",
    "1e400",
    "9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "1 2",
    " [ 1 , 2 ] ",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[",
    "]",
    "{",
    "}",
    "[}",
    "{]",
    r#"{"a":1}"#,
    r#"{"a":1,}"#,
    r#"{,"a":1}"#,
    r#"{"a" 1}"#,
    r#"{"a":}"#,
    r#"{a:1}"#,
    r#"{"a":1 "b":2}"#,
    r#"{"a":{"b":[{"c":null}]},"d":"e"}"#,
    r#"{"a":1,"a":2}"#,
    r#""plain""#,
    r#""open"#,
    r#""a\"b""#,
    r#""\u0041\ud83d\ude00""#,
    r#""\ud83d""#,
    r#""\x""#,
    r#""end\"#,
    "\"tab\there\"",
    "\"\u{e9}\"",
    "\"a\n\"",
    "",
    " ",
    "\u{feff}1",
    "[1]\n",
    "[1]x",
    r#"{"metadata":{"labels":{"a":"b"}}}"#,
];

fn compare<T: DeserializeOwned + PartialEq + std::fmt::Debug>(document: &[u8]) {
    let mut decoder = Decoder::new(document);
    let ours = T::deserialize(&mut decoder).and_then(|value| decoder.finish().map(|()| value));
    let theirs = serde_json::from_slice::<T>(document);
    let text = String::from_utf8_lossy(document);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{text}: {ours:?}, serde_json: {theirs:?}"),
    }
}

#[test]
fn documents_decode_as_with_serde_json() {
    for document in DOCUMENTS {
        compare::<Value>(document.as_bytes());
        compare::<Vec<i32>>(document.as_bytes());
        compare::<Option<String>>(document.as_bytes());
        compare::<BTreeMap<String, Option<f64>>>(document.as_bytes());
        compare::<i64>(document.as_bytes());
        compare::<Pod>(document.as_bytes());
        compare::<JSONSchemaProps>(document.as_bytes());
    }
    for document in [
        &b"\"\xff\""[..],
        b"\"a\x01\"",
        b"\"\xed\xa0\x80\"",
        b"{\"\xff\":1}",
    ] {
        compare::<Value>(document);
    }
}

#[test]
fn depth_of_what_is_decoded_is_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for (depth, decodes) in [(127, true), (160, true), (161, false), (1_000_000, false)] {
        let members = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert_eq!(
            from_slice::<Value>(nested(depth).as_bytes()).is_ok(),
            decodes
        );
        assert_eq!(from_slice::<Value>(members.as_bytes()).is_ok(), decodes);
    }
    // As the depth of what is skipped is not.
    compare::<IgnoredAny>(nested(1_000_000).as_bytes());
    compare::<IgnoredAny>(format!("{}]", nested(1_000)).as_bytes());
}

/// Changes single bytes of a document: most results are errors, and must be for both.
#[test]
fn damaged_documents_decode_as_with_serde_json() {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bytes = b"{}[],:\"\\0123456789.-+eEntrufals \n\x00\x7f\xc3";
    for _ in 0..20_000 {
        let mut document = POD.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..document.len());
            let byte = bytes[random.random_range(0..bytes.len())];
            match random.random_range(0..3) {
                0 => document[at] = byte,
                1 => document.insert(at, byte),
                _ => drop(document.remove(at)),
            }
        }
        compare::<Value>(&document);
        // serde_json does not look at the text of fields that the type does not have.
        if std::str::from_utf8(&document).is_ok() {
            compare::<Pod>(&document);
        }
    }
}

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"creationTimestamp":"2026-01-02T03:04:05Z",
 "managedFields":[{"manager":"m","operation":"Apply","fieldsV1":{"f:spec":{}}}]},
 "spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1","memory":2}},
 "livenessProbe":{"httpGet":{"port":"http","path":"\u00e9"}},"env":[{"name":"A","value":"x\ny"}]}],"priority":-5,"hostNetwork":true},
 "status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":null}],"podIPs":[{"ip":"10.0.0.1"}]}}"#;
