//! Protobuf, as gogo writes it for Kubernetes: members that are not pointers are always there, numbers ascend.

mod decode;
mod encode;
pub mod wire;

use api_schema::Message;
use serde_json::Value;

use crate::{DecodeError, envelope};

/// Reads an encoded message (without the frame); the tree is canonical and has no `kind` and `apiVersion`.
pub fn decode(message: &'static Message, bytes: &[u8]) -> Result<Value, DecodeError> {
    decode::read_message(message, bytes, 0)
}

/// Writes the message (without the frame).
pub fn encode(message: &'static Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_to(message, value, &mut out);
    out
}

/// Writes the message at the end of `out`.
pub fn encode_to(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    encode::write_message(message, value, out);
}

/// Reads a framed object; `kind` and `apiVersion` are set from the frame when it has them.
pub fn decode_object(message: &'static Message, bytes: &[u8]) -> Result<Value, DecodeError> {
    let frame = envelope::unwrap(bytes)?;
    let mut value = decode(message, frame.raw)?;
    if let Value::Object(map) = &mut value {
        for (name, text) in [("kind", frame.kind), ("apiVersion", frame.api_version)] {
            if !text.is_empty() {
                map.insert(name.to_owned(), Value::from(text));
            }
        }
    }
    Ok(value)
}

/// Writes a framed object, `kind` and `apiVersion` taken from the tree.
pub fn encode_object(message: &'static Message, value: &Value) -> Vec<u8> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut out = Vec::with_capacity(1024);
    envelope::wrap_with(text("apiVersion"), text("kind"), &mut out, |out| encode_to(message, value, out));
    out
}
