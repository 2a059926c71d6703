//! Short reads and writes of JSON trees. What is absent, null or of another type reads as empty: the schema checked types.

pub use api_meta::semantic::equal;
use serde_json::{Map, Value};

/// A string field, empty if absent.
pub fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// An optional string field.
pub fn opt_text<'a>(v: &'a Value, key: &str) -> Option<&'a str> {
    v.get(key).and_then(Value::as_str)
}

/// An optional integer field.
pub fn int(v: &Value, key: &str) -> Option<i64> {
    v.get(key).and_then(Value::as_i64)
}

/// A boolean field, false if absent.
pub fn flag(v: &Value, key: &str) -> bool {
    v.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// A list field, empty if absent.
pub fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The strings of a list field.
pub fn texts<'a>(v: &'a Value, key: &str) -> Vec<&'a str> {
    list(v, key).iter().filter_map(Value::as_str).collect()
}

/// A map field's entries, none if absent.
pub fn entries<'a>(v: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    v.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// A present, non-null field.
pub fn opt<'a>(v: &'a Value, key: &str) -> Option<&'a Value> {
    v.get(key).filter(|x| !x.is_null())
}

/// A field, null if absent.
pub fn get<'a>(v: &'a Value, key: &str) -> &'a Value {
    v.get(key).unwrap_or(&Value::Null)
}

/// Whether a field is present and not null.
pub fn has(v: &Value, key: &str) -> bool {
    opt(v, key).is_some()
}

/// Two fields are the same, an absent one being null, an empty map or list being absent.
pub fn same(a: &Value, b: &Value, key: &str) -> bool {
    equal(get(a, key), get(b, key))
}

/// Sets a field that is absent or null.
pub fn fill(v: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = v.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a string field that is absent, null or empty.
pub fn fill_text(v: &mut Value, key: &str, value: &str) {
    if text(v, key).is_empty() && v.get(key).is_none_or(|x| x.is_null() || x.is_string()) {
        set(v, key, value);
    }
}

/// Sets an integer field that is absent, null or zero.
pub fn fill_int(v: &mut Value, key: &str, value: i64) {
    if int(v, key).unwrap_or(0) == 0 {
        set(v, key, value);
    }
}

/// Sets a field.
pub fn set(v: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = v.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

/// Removes a field.
pub fn remove(v: &mut Value, key: &str) -> Option<Value> {
    v.as_object_mut().and_then(|m| m.remove(key))
}

/// A present object field, for change.
pub fn at_mut<'a>(v: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    v.get_mut(key).filter(|x| x.is_object())
}

/// An object field, made when absent.
pub fn make<'a>(v: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let entry = v.as_object_mut()?.entry(key.to_owned()).or_insert(Value::Null);
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    Some(entry).filter(|x| x.is_object())
}

/// The elements of a list field, for change.
pub fn each_mut<'a>(v: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    v.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}
