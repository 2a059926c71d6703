//! Encodes and decodes objects by their schema.
//!
//! Custom resources have no message: their objects are coerced to their structural schema. They
//! have no protobuf encoding.

use api_codec::{DecodeError, Problem, Strictness, cbor, json, proto, yaml};
use api_kinds::ObjectSchema;
use api_structural::list_duplicate_fields;
use serde_json::Value;

use crate::custom::{check_root, coerce_request, metadata_message};

/// Decodes a JSON body, in canonical form.
///
/// # Errors
/// The bytes are no JSON, or a value has the wrong type.
pub fn decode_json(
    schema: &ObjectSchema,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    match schema {
        ObjectSchema::BuiltIn(message) => json::decode(message, bytes, strictness),
        ObjectSchema::Custom(schema) => {
            let (tree, unknown) = coerce_request(schema, json::parse(bytes)?)?;
            // A second pass over the body, because a tree can't have two values for a field.
            let mut problems = match std::str::from_utf8(bytes) {
                Ok(body) if strictness.reports() => list_duplicate_fields(body),
                _ => Vec::new(),
            }
            .into_iter()
            .map(Problem::Duplicate)
            .collect::<Vec<_>>();
            problems.extend(unknown);
            Ok((tree, reported(problems, strictness)))
        }
    }
}

/// Decodes a YAML body, in canonical form.
///
/// # Errors
/// The bytes are no YAML, or a value has the wrong type.
pub fn decode_yaml(
    schema: &ObjectSchema,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    match schema {
        ObjectSchema::BuiltIn(message) => yaml::decode(message, bytes, strictness),
        ObjectSchema::Custom(schema) => {
            let (tree, mut problems) = yaml::parse(bytes)?;
            let (tree, more) = coerce_request(schema, tree)?;
            problems.extend(more);
            Ok((tree, reported(problems, strictness)))
        }
    }
}

/// Decodes a CBOR body, in canonical form.
///
/// # Errors
/// The bytes are no CBOR, a key is used twice, or a value has the wrong type.
pub fn decode_cbor(
    schema: &ObjectSchema,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    match schema {
        ObjectSchema::BuiltIn(message) => cbor::decode(message, bytes, strictness),
        ObjectSchema::Custom(schema) => {
            let (tree, problems) = coerce_request(schema, cbor::parse(bytes)?)?;
            Ok((tree, reported(problems, strictness)))
        }
    }
}

/// Checks a tree against the schema and makes it canonical. Reports unknown fields.
///
/// # Errors
/// A value has the wrong type.
pub fn check_tree(
    schema: &ObjectSchema,
    tree: Value,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    match schema {
        ObjectSchema::BuiltIn(message) => json::check(message, tree),
        ObjectSchema::Custom(schema) => coerce_request(schema, tree),
    }
}

/// Checks an object that admission has changed, and makes it canonical. A custom resource keeps
/// fields that its schema does not have, as upstream: with conversion strategy None, that may be
/// fields of the version of the request, whose schema prunes later.
///
/// # Errors
/// A value has the wrong type.
pub fn check_admitted(
    schema: &ObjectSchema,
    mut tree: Value,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    match schema {
        ObjectSchema::BuiltIn(message) => json::check(message, tree),
        ObjectSchema::Custom(_) => {
            let problems = check_root(&mut tree)?;
            Ok((tree, problems))
        }
    }
}

/// Makes a tree canonical. A tree with a value of the wrong type is left unchanged.
pub fn canonicalize(schema: &ObjectSchema, tree: &mut Value) {
    match schema {
        ObjectSchema::BuiltIn(message) => json::canonicalize(message, tree),
        ObjectSchema::Custom(_) => {
            if let (Some(message), Some(metadata)) = (metadata_message(), tree.get_mut("metadata"))
            {
                json::canonicalize(message, metadata);
            }
        }
    }
}

/// Returns the tree in the form of Go's encoder, including nulls, to which a JSON patch refers.
pub fn explicit_tree(schema: &ObjectSchema, tree: &Value) -> Value {
    match schema {
        ObjectSchema::BuiltIn(message) => json::explicit(message, tree),
        // Upstream keeps these objects as maps, so the encoder adds nothing.
        ObjectSchema::Custom(_) => tree.clone(),
    }
}

/// Encodes an object as JSON without a newline.
pub fn encode_json(schema: &ObjectSchema, tree: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_json_to(schema, tree, &mut out);
    out
}

/// Appends an object as JSON without a newline.
pub fn encode_json_to(schema: &ObjectSchema, tree: &Value, out: &mut Vec<u8>) {
    match schema {
        ObjectSchema::BuiltIn(message) => json::encode_to(message, tree, out),
        ObjectSchema::Custom(_) => json::write_value(tree, out),
    }
}

/// Encodes an object as a protobuf message without envelope; `None` if the kind has no such
/// encoding.
pub fn encode_proto(schema: &ObjectSchema, tree: &Value) -> Option<Vec<u8>> {
    schema.message().map(|message| proto::encode(message, tree))
}

/// Encodes an object as CBOR without a mark.
pub fn encode_cbor(schema: &ObjectSchema, tree: &Value) -> Vec<u8> {
    match schema {
        ObjectSchema::BuiltIn(message) => cbor::encode(message, tree),
        ObjectSchema::Custom(_) => cbor::encode_value(tree),
    }
}

fn reported(problems: Vec<Problem>, strictness: Strictness) -> Vec<Problem> {
    if strictness.reports() {
        problems
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn custom() -> ObjectSchema {
        ObjectSchema::Custom(Default::default())
    }

    #[test]
    fn custom_object_keeps_fields_that_no_message_has() {
        let body = br#"{"kind":"T","apiVersion":"e.io/v1","metadata":{"name":"a"},"spec":{"x":[1.5,null]}}"#;
        let (tree, problems) = decode_json(&custom(), body, Strictness::Strict).unwrap();
        assert_eq!(tree["spec"], json!({"x": [1.5, null]}));
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(explicit_tree(&custom(), &tree), tree);
    }

    #[test]
    fn metadata_of_a_custom_object_has_a_type() {
        let unknown = br#"{"metadata":{"name":"a","colour":"red"}}"#;
        let (tree, problems) = decode_json(&custom(), unknown, Strictness::Strict).unwrap();
        assert_eq!(tree["metadata"], json!({"name": "a"}));
        assert_eq!(problems[0].to_string(), "unknown field \"metadata.colour\"");
        let (_, ignored) = decode_json(&custom(), unknown, Strictness::Ignore).unwrap();
        assert!(ignored.is_empty());
        for body in [
            r#"{"metadata":{"labels":"x"}}"#,
            r#"{"metadata":[]}"#,
            r#"{"kind":1}"#,
            "[]",
            "1",
            "null",
        ] {
            assert!(
                decode_json(&custom(), body.as_bytes(), Strictness::Warn).is_err(),
                "{body}"
            );
        }
    }

    #[test]
    fn yaml_of_a_custom_object_reports_duplicate_keys() {
        let body = b"metadata: {name: a}\nspec:\n  x: 1\n  x: 2\n";
        let (tree, problems) = decode_yaml(&custom(), body, Strictness::Warn).unwrap();
        assert_eq!(tree["spec"]["x"], 2);
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    #[test]
    fn custom_object_in_cbor_is_read_as_in_json() {
        let tree = json!({"kind": "T", "apiVersion": "e.io/v1", "metadata": {"name": "a"},
            "spec": {"x": [1.5, null, 1, 1.0], "bytes": "AQ=="}});
        let bytes = encode_cbor(&custom(), &tree);
        let read = decode_cbor(&custom(), &bytes, Strictness::Strict);
        assert_eq!(read, Ok((tree, Vec::new())));
        let unknown = cbor::encode_value(&json!({"metadata": {"name": "a", "colour": "red"}}));
        let (_, problems) = decode_cbor(&custom(), &unknown, Strictness::Strict).unwrap();
        assert_eq!(problems[0].to_string(), "unknown field \"metadata.colour\"");
        let wrong = cbor::encode_value(&json!({"metadata": []}));
        assert!(decode_cbor(&custom(), &wrong, Strictness::Warn).is_err());
    }

    #[test]
    fn custom_object_is_encoded_like_a_map_of_go() {
        let tree = json!({"spec": {"b": "<", "a": 1.0}, "kind": "T", "apiVersion": "v1"});
        assert_eq!(
            String::from_utf8(encode_json(&custom(), &tree)).unwrap(),
            r#"{"apiVersion":"v1","kind":"T","spec":{"a":1,"b":"\u003c"}}"#
        );
        assert_eq!(encode_proto(&custom(), &tree), None);
    }
}
