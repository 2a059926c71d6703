//! The examples of RFC 8949, appendix A, and upstream's rules for what it leaves open.
#![allow(clippy::unwrap_used, missing_docs)]

use api_codec::{DecodeError, Problem, Strictness, cbor, json};
use api_schema::{Message, schema};
use serde_json::{Value, json};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse(text: &str) -> Result<Value, DecodeError> {
    cbor::parse(&hex(text))
}

fn message(name: &str) -> &'static Message {
    schema().message(name).unwrap()
}

fn decode(name: &str, bytes: &[u8]) -> Result<(Value, Vec<Problem>), DecodeError> {
    cbor::decode(message(name), bytes, Strictness::Strict)
}

const SECRET: &str = "k8s.io.api.core.v1.Secret";

/// An example, its value, and its encoding if that differs.
type Example = (&'static str, Value, Option<&'static str>);

fn check(examples: &[Example]) {
    for (bytes, value, encoded) in examples {
        assert_eq!(parse(bytes).as_ref(), Ok(value), "{bytes}");
        let written = to_hex(&cbor::encode_value(value));
        assert_eq!(written, encoded.unwrap_or(bytes), "{bytes}");
    }
}

#[test]
fn numbers_of_the_appendix_are_read_and_written() {
    check(&[
        ("00", json!(0), None),
        ("01", json!(1), None),
        ("0a", json!(10), None),
        ("17", json!(23), None),
        ("1818", json!(24), None),
        ("1819", json!(25), None),
        ("1864", json!(100), None),
        ("1903e8", json!(1000), None),
        ("1a000f4240", json!(1_000_000), None),
        ("1b000000e8d4a51000", json!(1_000_000_000_000_i64), None),
        ("20", json!(-1), None),
        ("29", json!(-10), None),
        ("3863", json!(-100), None),
        ("3903e7", json!(-1000), None),
        ("1b7fffffffffffffff", json!(i64::MAX), None),
        ("3b7fffffffffffffff", json!(i64::MIN), None),
        ("f90000", json!(0.0), None),
        ("f93c00", json!(1.0), None),
        ("fb3ff199999999999a", json!(1.1), None),
        ("f93e00", json!(1.5), None),
        ("f97bff", json!(65504.0), None),
        ("fa47c35000", json!(100_000.0), None),
        ("fa7f7fffff", json!(3.402_823_466_385_288_6e38), None),
        ("fb7e37e43c8800759c", json!(1.0e300), None),
        ("f90001", json!(5.960_464_477_539_063e-8), None),
        ("f90400", json!(0.000_061_035_156_25), None),
        ("f9c400", json!(-4.0), None),
        ("fbc010666666666666", json!(-4.1), None),
        // Longer forms than necessary.
        ("1800", json!(0), Some("00")),
        ("fb3ff0000000000000", json!(1.0), Some("f93c00")),
    ]);
    // serde_json compares -0.0 and 0.0 as equal.
    assert_eq!(
        to_hex(&cbor::encode_value(&parse("f98000").unwrap())),
        "f98000"
    );
}

#[test]
fn texts_of_the_appendix_are_written_as_byte_strings() {
    check(&[
        ("40", json!(""), None),
        ("4401020304", json!("\u{1}\u{2}\u{3}\u{4}"), None),
        ("60", json!(""), Some("40")),
        ("6161", json!("a"), Some("4161")),
        ("6449455446", json!("IETF"), Some("4449455446")),
        ("62225c", json!("\"\\"), Some("42225c")),
        ("62c3bc", json!("ü"), Some("42c3bc")),
        ("63e6b0b4", json!("水"), Some("43e6b0b4")),
        ("64f0908591", json!("\u{10151}"), Some("44f0908591")),
        (
            "5f42010243030405ff",
            json!("\u{1}\u{2}\u{3}\u{4}\u{5}"),
            Some("450102030405"),
        ),
        (
            "7f657374726561646d696e67ff",
            json!("streaming"),
            Some("4973747265616d696e67"),
        ),
        // Bytes that are no UTF-8, as upstream writes an invalid Go string.
        ("4180", json!("\u{fffd}"), Some("43efbfbd")),
    ]);
}

#[test]
fn containers_of_the_appendix_are_read_and_written() {
    let long: Vec<i32> = (1..=25).collect();
    let long_bytes = "98190102030405060708090a0b0c0d0e0f101112131415161718181819";
    check(&[
        ("f4", json!(false), None),
        ("f5", json!(true), None),
        ("f6", json!(null), None),
        ("80", json!([]), None),
        ("83010203", json!([1, 2, 3]), None),
        ("8301820203820405", json!([1, [2, 3], [4, 5]]), None),
        (long_bytes, json!(long), None),
        ("a0", json!({}), None),
        (
            "a26161016162820203",
            json!({"a": 1, "b": [2, 3]}),
            Some("a24161014162820203"),
        ),
        (
            "826161a161626163",
            json!(["a", {"b": "c"}]),
            Some("824161a141624163"),
        ),
        (
            "a56161614161626142616361436164614461656145",
            json!({"a": "A", "b": "B", "c": "C", "d": "D", "e": "E"}),
            Some("a54161414141624142416341434164414441654145"),
        ),
        ("9fff", json!([]), Some("80")),
        (
            "9f018202039f0405ffff",
            json!([1, [2, 3], [4, 5]]),
            Some("8301820203820405"),
        ),
        (
            "9f01820203820405ff",
            json!([1, [2, 3], [4, 5]]),
            Some("8301820203820405"),
        ),
        (
            "83018202039f0405ff",
            json!([1, [2, 3], [4, 5]]),
            Some("8301820203820405"),
        ),
        (
            "83019f0203ff820405",
            json!([1, [2, 3], [4, 5]]),
            Some("8301820203820405"),
        ),
        (
            "9f0102030405060708090a0b0c0d0e0f101112131415161718181819ff",
            json!(long),
            Some(long_bytes),
        ),
        (
            "bf61610161629f0203ffff",
            json!({"a": 1, "b": [2, 3]}),
            Some("a24161014162820203"),
        ),
        (
            "826161bf61626163ff",
            json!(["a", {"b": "c"}]),
            Some("824161a141624163"),
        ),
        (
            "bf6346756ef563416d7421ff",
            json!({"Amt": -2, "Fun": true}),
            Some("a243416d74214346756ef5"),
        ),
        // Keys are sorted by length, then by bytes.
        (
            "a341620041610042616100",
            json!({"a": 0, "aa": 0, "b": 0}),
            Some("a341610041620042616100"),
        ),
    ]);
}

#[test]
fn tags_become_what_json_has() {
    for (bytes, value) in [
        ("d9d9f7 a0", json!({})),
        ("d9d9f7 d9d9f7 81 d9d9f7 01", json!([1])),
        (
            "c074323031332d30332d32315432303a30343a30305a",
            json!("2013-03-21T20:04:00Z"),
        ),
        ("c11a514b67b0", json!("2013-03-21T20:04:00Z")),
        ("c1fb41d452d9ec200000", json!("2013-03-21T20:04:00.5Z")),
        ("c120", json!("1969-12-31T23:59:59Z")),
        ("c1f9bc00", json!("1969-12-31T23:59:59Z")),
        // Byte strings with an expected encoding.
        ("d54401fbff04", json!("Afv_BA")),
        ("d64401020304", json!("AQIDBA==")),
        ("d74401020304", json!("01020304")),
        ("d6 82 4101 d7 4102", json!(["AQ==", "02"])),
        ("d6 a1 6161 4101", json!({"a": "AQ=="})),
        ("82 d6 4101 4161", json!(["AQ==", "a"])),
        ("d6 6161", json!("a")),
        // Unknown tags.
        ("d818456449455446", json!("dIETF")),
        (
            "d82076687474703a2f2f7777772e6578616d706c652e636f6d",
            json!("http://www.example.com"),
        ),
        ("c48221196ab3", json!([-2, 27315])),
    ] {
        assert_eq!(parse(bytes), Ok(value), "{bytes}");
    }
}

#[test]
fn what_no_tree_can_hold_is_rejected() {
    for bytes in [
        // Integers beyond 64 bits with a sign, and big numbers.
        "1bffffffffffffffff",
        "1b8000000000000000",
        "3bffffffffffffffff",
        "3b8000000000000000",
        "c249010000000000000000",
        "c349010000000000000000",
        // NaN and infinity.
        "f97c00",
        "f97e00",
        "f9fc00",
        "fa7f800000",
        "fa7fc00000",
        "faff800000",
        "fb7ff0000000000000",
        "fb7ff8000000000000",
        "fbfff0000000000000",
        "c1f97c00",
        // Other simple values.
        "f7",
        "f0",
        "f8ff",
        "f814",
        // Keys that are no text.
        "a201020304",
        "a1fb40091eb851eb851f63706965",
        "a1f600",
        "a1800a",
        // Duplicate keys, in any form.
        "a2 6161 01 6161 02",
        "a2 4161 01 4161 02",
        "a2 4161 01 6161 02",
        "a2 5f4161ff 01 6161 02",
        "bf 6161 01 6161 02 ff",
        "81 a2 4180 01 4181 02",
        // Text that is no UTF-8, also split among chunks.
        "6180",
        "7f61c361bcff",
        // Tags with other content than they have.
        "c06474657874",
        "c054323030362d30312d30325431353a30343a30355a",
        "c16161",
        "c1f4",
        "c11b0000003afff44181",
        "c11b7fffffffffffffff",
        "c1fb7e37e43c8800759c",
    ] {
        assert!(parse(bytes).is_err(), "{bytes}: {:?}", parse(bytes));
    }
}

#[test]
fn malformed_items_are_rejected() {
    for bytes in [
        "",
        "ff",
        "1c",
        "5f",
        "7f6161",
        "5f6161ff",
        "5f5f4161ffff",
        "5f01ff",
        "81",
        "8201",
        "9f01",
        "a1",
        "a14161",
        "bf4161ff",
        "bf41610141",
        "c0",
        "d9d9f7",
        "42 61",
        // Announced lengths without the data.
        "9affffffff",
        "9bffffffffffffffff",
        "baffffffff",
        "5bffffffffffffffff",
        "7b7fffffffffffffff6161",
        // More than one item.
        "0000",
        "d9d9f7a0ff",
    ] {
        assert!(parse(bytes).is_err(), "{bytes}");
    }
}

#[test]
fn nesting_is_limited_as_in_json() {
    let nested = |levels: usize| [vec![0x81; levels - 1], vec![0x80]].concat();
    assert!(cbor::parse(&nested(127)).is_ok());
    let deep = Err(DecodeError::TooDeep("exceeded max depth".to_owned()));
    assert_eq!(cbor::parse(&nested(128)), deep);
    assert_eq!(cbor::parse(&nested(3 << 20)), deep);
    assert_eq!(cbor::parse(&vec![0x9f; 3 << 20]), deep);
    // An unknown field is skipped, with the same limit.
    let unknown = [b"\xa1\x41x".to_vec(), nested(1000)].concat();
    assert!(matches!(
        decode(SECRET, &unknown),
        Err(DecodeError::TooDeep(_))
    ));
    let text = "[".repeat(127) + &"]".repeat(127);
    assert!(json::parse(text.as_bytes()).is_ok());
    assert!(json::parse(format!("[{text}]").as_bytes()).is_err());
    // Tags are no levels.
    let tags = [vec![0xc6; 3 << 20], vec![0x00]].concat();
    assert_eq!(cbor::parse(&tags), Ok(json!(0)));
}

#[test]
fn values_are_as_many_as_in_json() {
    let array = |count: u32| [&[0x9a][..], &count.to_be_bytes(), &vec![0; count as usize]].concat();
    assert!(cbor::parse(&array(3 << 19)).is_ok());
    let error = cbor::parse(&array((3 << 19) + 1)).unwrap_err();
    assert_eq!(error.to_string(), "cbor: too many values");
}

#[test]
fn bytes_of_a_type_are_base64_unless_a_tag_names_the_encoding() {
    let read = |value: &str| {
        let bytes = hex(&format!("a1 4464617461 a1 416b {value}"));
        decode(SECRET, &bytes).map(|(tree, _)| tree["data"]["k"].clone())
    };
    assert_eq!(read("48415149444241 3d3d"), Ok(json!("AQIDBA==")));
    for tagged in ["d54401020304", "d64401020304", "d74401020304"] {
        assert_eq!(read(tagged), Ok(json!("AQIDBA==")), "{tagged}");
    }
    assert_eq!(read("d640"), Ok(json!("")));
    for wrong in ["41ff", "684151494442413d3d", "01", "81 4101"] {
        assert!(
            matches!(
                read(wrong),
                Err(DecodeError::Type(_) | DecodeError::Syntax(_))
            ),
            "{wrong}"
        );
    }
}

#[test]
fn object_of_a_type_is_written_with_bytes_as_bytes() {
    let object = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"},
        "data": {"k": "AQIDBA=="}, "immutable": false, "type": "Opaque"});
    let encoded = cbor::encode(message(SECRET), &object);
    let want = "a6 44 64617461 a1 41 6b d644 01020304 \
        44 6b696e64 46 536563726574 \
        44 74797065 46 4f7061717565 \
        48 6d65746164617461 a1 44 6e616d65 41 73 \
        49 696d6d757461626c65 f4 \
        4a 61706956657273696f6e 42 7631";
    let want = to_hex(&hex(want));
    assert_eq!(to_hex(&encoded), want);
    let (read, problems) = decode(SECRET, &cbor::mark(&encoded)).unwrap();
    let (canonical, _) = json::check(message(SECRET), object).unwrap();
    assert_eq!((read, problems), (canonical, Vec::new()));
}

#[test]
fn problems_and_wrong_types_have_their_path() {
    let pod = "k8s.io.api.core.v1.Pod";
    let encode = |tree: Value| cbor::encode_value(&tree);
    let unknown =
        encode(json!({"spec": {"containers": [{"name": "c", "imag": [1, {"a": 2}]}], "x": 1}}));
    let (tree, mut problems) = decode(pod, &unknown).unwrap();
    problems.sort_by_key(ToString::to_string);
    let names = ["spec.containers[0].imag", "spec.x"].map(|name| Problem::Unknown(name.to_owned()));
    assert_eq!(problems, names);
    assert_eq!(tree["spec"]["containers"][0]["name"], "c");
    for (wrong, text) in [
        (
            json!({"spec": {"priority": "1"}}),
            "cbor: cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            json!({"spec": {"priority": 1.0}}),
            "cbor: cannot unmarshal number 1.0 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            json!({"metadata": {"labels": []}}),
            "cbor: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
    ] {
        let error = decode(pod, &encode(wrong.clone())).unwrap_err();
        assert_eq!(error.to_string(), text, "{wrong}");
    }
}

#[test]
fn large_number_is_written_as_a_float() {
    // Upstream's JSON decoder makes a float of it, and no decoder of CBOR reads it as an integer.
    let encoded = cbor::encode_value(&json!(u64::MAX));
    assert_eq!(to_hex(&encoded), "fa5f800000");
}
