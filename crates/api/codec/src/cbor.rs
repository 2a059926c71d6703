//! Decodes and encodes CBOR (RFC 8949) by upstream's rules.
//!
//! Written: text as byte strings, bytes with tag 22, the shortest form of each number, map keys in
//! bytewise order of their encoding. Accepted: any well-formed item with a JSON equivalent.
//! Rejected: duplicate keys, other keys than text, integers beyond 64 bits with a sign, NaN and
//! infinity, big numbers, `undefined`.
//!
//! The decoder is a serde source, so that the visitors of JSON build the tree, with the same
//! problems and paths.

mod decode;
mod encode;
mod error;
mod float;
mod head;
mod item;

use api_schema::Message;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{DecodeError, Problem, Strictness};

pub(crate) use encode::{write_text, write_value};
pub(crate) use head::{ARRAY, MAP, split_members, write_head};

/// First bytes of each encoded object: the tag 55799, which has no meaning but to mark CBOR.
pub const MAGIC: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Decodes a body as an object of the type, in canonical form.
///
/// # Errors
/// The bytes are no CBOR, a key is used twice, or a value has the wrong type.
pub fn decode(
    message: &'static Message,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    let mut reader = item::Reader::new(bytes);
    let outcome = crate::json::decode_from(message, &mut reader, strictness)?;
    reader.end()?;
    Ok(outcome)
}

/// Parses CBOR without a type (custom resources, applied objects).
///
/// # Errors
/// The bytes are no CBOR, or a key is used twice.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut reader = item::Reader::new(bytes);
    let value = Value::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Encodes the object, without [`MAGIC`].
pub fn encode(message: &'static Message, value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    encode::write_message(message, value, &mut out);
    out
}

/// Encodes a tree without a type, without [`MAGIC`].
pub fn encode_value(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_value(value, &mut out);
    out
}

/// Returns an encoded object with [`MAGIC`] before it.
pub fn mark(object: &[u8]) -> Vec<u8> {
    [&MAGIC, object].concat()
}
