//! Decodes and encodes JSON.

mod canonical_form;
mod decode;
mod encode;
mod text;

use std::borrow::Cow;

use api_schema::Message;
use serde_json::Value;

use crate::{DecodeError, Problem, Strictness};

use canonical_form::is_canonical;
pub(crate) use decode::decode_from;
pub(crate) use encode::write_typed;
pub use encode::{encode, encode_to};
pub use text::{write_string, write_value};

/// Decodes a JSON body as an object of the type, in canonical form.
///
/// Names are matched exactly. Null is accepted for any value. Nesting is limited to 127 levels.
/// Invalid UTF-8 becomes the replacement character, as in Go, and is rejected by validation.
pub fn decode(
    message: &'static Message,
    bytes: &[u8],
    strictness: Strictness,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    let text = decode_utf8(bytes);
    // serde_json limits the nesting to 127 levels. All code that walks or drops a tree is recursive
    // and relies on it.
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let outcome = decode_from(message, &mut deserializer, strictness)?;
    deserializer.end()?;
    Ok(outcome)
}

/// Parses JSON without a type (custom resources, patches). Nesting is limited, and the last of
/// duplicate keys counts.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    Ok(serde_json::from_str(&decode_utf8(bytes))?)
}

/// Checks a tree against the type and makes it canonical. Reports unknown fields.
pub fn check(
    message: &'static Message,
    value: Value,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    // Most trees come from a decoder and were changed in a few places.
    if is_canonical(message, &value) {
        return Ok((value, Vec::new()));
    }
    decode_from(message, value, Strictness::Strict)
}

/// Makes a tree canonical. Unknown fields are dropped. A tree with a value of the wrong type is
/// left unchanged, so that validation reports it.
pub fn canonicalize(message: &'static Message, value: &mut Value) {
    if is_canonical(message, value) {
        return;
    }
    // A wrong type here is a bug of a caller or a mutating webhook, and validation has the better
    // message.
    if let Ok((canonical, _)) = decode_from(message, value.clone(), Strictness::Ignore) {
        *value = canonical;
    }
}

/// Returns the tree in the form of Go's encoder, including nulls, to which a JSON patch refers.
pub fn explicit(message: &'static Message, value: &Value) -> Value {
    serde_json::from_slice(&encode(message, value)).unwrap_or(Value::Null)
}

fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // serde_json has no error codes. The texts are checked by the tests of hostile bodies.
        if text.starts_with("recursion limit exceeded") {
            return DecodeError::TooDeep("exceeded max depth".to_owned());
        }
        if text.starts_with("EOF while parsing") {
            return DecodeError::Syntax("unexpected end of JSON input".to_owned());
        }
        DecodeError::Syntax(format!("invalid JSON: {text}"))
    }
}
