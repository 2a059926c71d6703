//! The fields of a message of gnostic.

use serde_json::Value;

/// A message: its known keys, and the treatment of others.
pub(crate) struct Message {
    pub(crate) fields: &'static [(&'static str, u32, Part)],
    /// Number of the list for keys that start with `x-`; 0 for none.
    pub(crate) extensions: u32,
    /// Number and type of a map for all other keys.
    pub(crate) others: Option<(u32, Part)>,
}

/// Encoding of a value.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Text,
    Bool,
    Int,
    Double,
    /// Text that contains YAML.
    Any,
    /// A default in version 3: number, boolean or text.
    Scalar,
    One(&'static Message),
    /// A list of values.
    Each(&'static Part),
    /// A value in nested messages that only contain this number.
    In(&'static [u32], &'static Part),
    /// A boolean in a message of its own (number 2), or another value.
    BoolOr(&'static Part),
    /// One of several encodings, chosen by the value.
    Choice(fn(&Value) -> (&'static [u32], &'static Message)),
}

/// Returns the message of a map from names to values.
pub(crate) const fn map_entry_message(values: Part) -> Message {
    Message {
        fields: &[],
        extensions: 0,
        others: Some((1, values)),
    }
}
