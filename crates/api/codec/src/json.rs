//! Decodes and encodes JSON.

mod decode;
mod encode;
mod text;

use std::borrow::Cow;

use api_schema::Message;
use serde_json::Value;

use crate::{DecodeError, Problem, Strictness};

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
    let text = lossy(bytes);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let outcome = decode::decode(message, &mut deserializer, strictness)?;
    deserializer.end().map_err(|error| syntax(&error))?;
    Ok(outcome)
}

/// Parses JSON without a type (custom resources, patches). Nesting is limited, and the last of
/// duplicate keys counts.
pub fn parse(bytes: &[u8]) -> Result<Value, DecodeError> {
    serde_json::from_str(&lossy(bytes)).map_err(|error| syntax(&error))
}

/// Checks a tree against the type and makes it canonical. Reports unknown fields.
pub fn check(
    message: &'static Message,
    value: Value,
) -> Result<(Value, Vec<Problem>), DecodeError> {
    decode::decode(message, value, Strictness::Strict)
}

/// Makes a tree canonical. Unknown fields are dropped. A tree with a value of the wrong type is
/// left unchanged, so that validation reports it.
pub fn canonicalize(message: &'static Message, value: &mut Value) {
    if let Ok((canonical, _)) = decode::decode(message, value.clone(), Strictness::Ignore) {
        *value = canonical;
    }
}

/// Returns the tree in the form of Go's encoder, including nulls, to which a JSON patch refers.
pub fn explicit(message: &'static Message, value: &Value) -> Value {
    serde_json::from_slice(&encode(message, value)).unwrap_or(Value::Null)
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn syntax(error: &serde_json::Error) -> DecodeError {
    let text = error.to_string();
    if text.starts_with("recursion limit exceeded") {
        return DecodeError::TooDeep("exceeded max depth".to_owned());
    }
    if text.starts_with("EOF while parsing") {
        return DecodeError::Syntax("unexpected end of JSON input".to_owned());
    }
    DecodeError::Syntax(format!("invalid JSON: {text}"))
}
