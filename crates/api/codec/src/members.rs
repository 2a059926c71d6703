//! The members of a tree by the position of their field.

use api_schema::{Field, Message};
use serde_json::{Map, Value};

/// Fields of a message that are looked up by position; those beyond by name.
const INDEXED: usize = 48;
/// Fields from which on looking up the members, which are fewer, is faster than looking up all
/// fields in the tree.
const MANY_FIELDS: usize = 6;

/// The values of a message's own fields in a tree.
pub(crate) struct Members<'a> {
    map: &'a Map<String, Value>,
    values: Option<[Option<&'a Value>; INDEXED]>,
}

impl<'a> Members<'a> {
    /// Looks up the members of the tree.
    pub(crate) fn new(message: &'static Message, map: &'a Map<String, Value>) -> Self {
        if message.fields.len() < MANY_FIELDS {
            return Members { map, values: None };
        }
        let mut values = [None; INDEXED];
        for (name, value) in map {
            let position = message.own_position(name);
            if let Some(slot) = position.and_then(|at| values.get_mut(at)) {
                *slot = Some(value);
            }
        }
        Members {
            map,
            values: Some(values),
        }
    }

    /// Returns the value of the field at a position.
    pub(crate) fn get(&self, position: usize, field: &Field) -> Option<&'a Value> {
        let values = self.values.as_ref();
        match values.and_then(|values| values.get(position)) {
            Some(value) => *value,
            None => self.map.get(field.json),
        }
    }
}
