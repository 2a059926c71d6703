//! Decodes JSON into the types of k8s-openapi.
//!
//! serde compiles a decoder for every type, and serde_json's parser becomes part of each. Here the
//! parser has no type parameters and is compiled once (`parser`). Only the few lines that pass a
//! value to its visitor are compiled for each type (`decoder`).

mod decoder;
mod parser;
#[cfg(test)]
mod tests;

pub(crate) use decoder::Decoder;

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// Decodes a document. Go's rules are applied only if it fails strictly, as they cost more.
///
/// # Errors
/// The document is not JSON, or a field has the wrong type.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode()?;
    decoder.finish()?;
    Ok(value)
}

/// Decodes a tree strictly, by way of its text.
///
/// # Errors
/// A field has the wrong type, or the tree is too deep.
pub(crate) fn from_tree<T: DeserializeOwned>(tree: &Value) -> Result<T, Error> {
    // The decoder of texts exists already; one of trees would be thousands of functions more.
    let text = serde_json::to_vec(tree)?;
    T::deserialize(&mut Decoder::new(&text))
}
