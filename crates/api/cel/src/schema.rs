//! Schemas that give JSON values a type without converting them.

use std::fmt::Debug;

/// A reading of a JSON value as a value of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonForm {
    /// By the JSON value itself: whole numbers are `int`, all other numbers `double`.
    Dynamic,
    /// A whole number.
    Int,
    /// A number, whole or not.
    Double,
    /// A string.
    String,
    /// A string in base64 (format `byte`).
    Bytes,
    /// A date without a time (format `date`).
    Date,
    /// A time of RFC 3339 (format `date-time`).
    DateTime,
    /// A duration in Go's notation (format `duration`).
    Duration,
    /// A list whose order matters.
    List,
    /// A list whose elements are unique and unordered (list type `set`).
    Set,
    /// A list of objects that are known by the fields of `JsonSchema::list_keys` (list type `map`).
    MapList,
    /// An object with declared fields.
    Object,
    /// An object with arbitrary keys.
    Map,
}

/// A schema node that types a JSON value while an expression reads it.
pub trait JsonSchema: Debug + Send + Sync {
    /// Returns the reading of the value.
    fn form(&self) -> JsonForm;
    /// Returns the name of the object type.
    fn type_name(&self) -> &str {
        "object"
    }
    /// Returns the schema of a declared field, by its name in JSON (not escaped).
    fn property(&self, name: &str) -> Option<&dyn JsonSchema>;
    /// Returns the schema of list elements.
    fn items(&self) -> Option<&dyn JsonSchema>;
    /// Returns the schema of the values of a map.
    fn values(&self) -> Option<&dyn JsonSchema>;
    /// Reports whether keys of a map are looked up by their escaped names, like declared fields.
    fn unescapes_keys(&self) -> bool {
        false
    }
    /// Returns the fields that identify an element of a list of type `map`.
    fn list_keys(&self) -> &[String] {
        &[]
    }
}
