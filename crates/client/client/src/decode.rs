//! Decoding of a kind from JSON, and encoding.

use crate::list::List;
use crate::watch_event::WatchEvent;
use serde_json::{Error, Value};

/// Decoding of a kind from JSON.
///
/// The decoder of a Pod is thousands of functions. As a generic function it would be compiled, and
/// kept in the programs, once for every crate that reads Pods; as a method of a trait that is
/// implemented in this crate for each kind it exists once.
pub trait Decode: Sized + 'static {
    /// Decodes an object.
    ///
    /// # Errors
    /// The document is not JSON, or a field has the wrong type.
    fn decode_object(bytes: &[u8]) -> Result<Self, Error>;

    /// Decodes an object from a JSON tree. Unlike in a server's text, null in a list or a map is an
    /// error.
    ///
    /// # Errors
    /// A field has the wrong type, or the tree is too deep.
    fn decode_tree(tree: &Value) -> Result<Self, Error>;

    /// Decodes a list of objects of `kind`. An object that can't be decoded is logged and named in
    /// the list.
    ///
    /// # Errors
    /// The document is no list.
    fn decode_list(bytes: &[u8], kind: &str) -> Result<List<Self>, Error>;

    /// Decodes a list as [`Decode::decode_list`], and calls `receive` for each object instead of
    /// adding it to the list.
    ///
    /// # Errors
    /// The document is no list. Objects before the error were received.
    fn decode_items(
        bytes: &[u8],
        kind: &str,
        receive: &mut dyn FnMut(Self),
    ) -> Result<List<Self>, Error>;

    /// Decodes a watch event.
    ///
    /// # Errors
    /// The line is no event.
    fn decode_event(line: &[u8]) -> Result<WatchEvent<Self>, Error>;
}

/// Encoding of a kind as JSON. Implemented here once for each kind, for the reason that [`Decode`]
/// gives.
pub trait Encode {
    /// Encodes the object.
    ///
    /// # Errors
    /// The object can't be represented.
    fn encode_object(&self) -> Result<Vec<u8>, Error>;
}
