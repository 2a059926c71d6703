//! Protobuf like that of gogo for Kubernetes: members that are not pointers are always written, in
//! ascending order of numbers.

mod decode;
mod encode;
mod part;
mod revision;
pub mod wire;

use api_schema::Message;
use serde_json::Value;

use crate::{DecodeError, envelope};
pub(crate) use decode::{MAX_DEPTH, read_message, read_text, wrong_wire};
pub use part::Part;
pub use revision::set_resource_version;

/// Decodes a message (without its envelope). The tree is canonical and has no `kind` and
/// `apiVersion`.
pub fn decode(message: &'static Message, bytes: &[u8]) -> Result<Value, DecodeError> {
    decode::read_message(message, bytes, 0)
}

/// Decodes a part of a message, as [`decode`] does. Errors in the other parts are not found.
pub fn decode_part(
    message: &'static Message,
    bytes: &[u8],
    part: &Part,
) -> Result<Value, DecodeError> {
    decode::read_part(message, bytes, 0, part)
}

/// Encodes the message (without an envelope).
pub fn encode(message: &'static Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode_to(message, value, &mut out);
    out
}

/// Appends the encoded message to `out`.
pub fn encode_to(message: &'static Message, value: &Value, out: &mut Vec<u8>) {
    encode::write_message(message, value, out);
}

/// Decodes an object with its envelope. `kind` and `apiVersion` are taken from the envelope if it
/// has them.
pub fn decode_object(message: &'static Message, bytes: &[u8]) -> Result<Value, DecodeError> {
    let frame = envelope::unwrap(bytes)?;
    let mut value = decode(message, frame.raw)?;
    if let Value::Object(map) = &mut value {
        // Messages have no type meta in protobuf: only the envelope has it.
        for (name, text) in [("kind", frame.kind), ("apiVersion", frame.api_version)] {
            if !text.is_empty() {
                map.insert(name.to_owned(), Value::from(text));
            }
        }
    }
    Ok(value)
}

/// Encodes an object with its envelope. `kind` and `apiVersion` are taken from the tree.
pub fn encode_object(message: &'static Message, value: &Value) -> Vec<u8> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut out = Vec::with_capacity(1024);
    envelope::wrap_with(text("apiVersion"), text("kind"), &mut out, |out| {
        encode_to(message, value, out)
    });
    out
}
