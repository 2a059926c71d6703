//! Bytes of objects in the negotiated format.

use crate::negotiate::{Format, MediaType};
use api_codec::{cbor, json, proto, yaml};
use api_kinds::ObjectSchema;
use apiserver_convert::codec;
use serde_json::Value;

/// Encodes an object.
pub fn encode_tree(media_type: MediaType, schema: &ObjectSchema, tree: &Value) -> Vec<u8> {
    match (media_type.format, schema.message()) {
        (Format::Protobuf, Some(message)) => proto::encode_object(message, tree),
        (Format::Cbor, _) => cbor::mark(&codec::encode_cbor(schema, tree)),
        _ => restyle_json(media_type, codec::encode_json(schema, tree)),
    }
}

/// Encodes a tree without a schema; protobuf falls back to JSON.
pub fn encode_untyped(media_type: MediaType, tree: &Value) -> Vec<u8> {
    if media_type.format == Format::Cbor {
        return cbor::mark(&cbor::encode_value(tree));
    }
    restyle_json(media_type, encode_value(tree))
}

/// Encodes a tree without a schema as compact JSON.
pub fn encode_value(tree: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    json::write_value(tree, &mut bytes);
    bytes
}

/// Indents compact JSON if negotiated.
pub fn restyle_json(media_type: MediaType, mut bytes: Vec<u8>) -> Vec<u8> {
    if media_type.format == Format::Yaml {
        // YAML is rare, so that it takes the detour over JSON, which has the right field names.
        let tree: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        return yaml::encode(&tree).into_bytes();
    }
    if media_type.pretty {
        return indent_json(&bytes);
    }
    bytes.push(b'\n');
    bytes
}

/// Indents JSON by two blanks; keeps the order of fields.
fn indent_json(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let mut bytes = compact.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            out.push(byte);
            in_string = escaped || byte != b'"';
            escaped = byte == b'\\' && !escaped;
            continue;
        }
        match byte {
            // Brackets and commas inside strings are no structure.
            b'"' => in_string = true,
            // Go's encoder keeps empty objects and lists on one line.
            b'{' | b'[' if bytes.peek().is_some_and(|next| matches!(next, b'}' | b']')) => {
                out.push(byte);
                out.extend(bytes.next());
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
            }
            _ => {}
        }
        out.push(byte);
        match byte {
            b'{' | b'[' | b',' => new_line(&mut out, depth),
            b':' => out.push(b' '),
            _ => {}
        }
    }
    out.push(b'\n');
    out
}

fn new_line(out: &mut Vec<u8>, depth: usize) {
    out.push(b'\n');
    out.resize(out.len() + depth * 2, b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation() {
        let out = indent_json(br#"{"a":[1,{"b":"x,\"{"}],"c":{}}"#);
        let expect =
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,\\\"{\"\n    }\n  ],\n  \"c\": {}\n}\n";
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }
}
