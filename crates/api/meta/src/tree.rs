//! Accessors of JSON trees. An absent or null value or one of another type reads as empty, because
//! the schema checked the types.

pub use crate::semantic::equal;
use serde_json::{Map, Value};

/// Returns a string field; empty if absent.
pub fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns an optional string field.
pub fn opt_text<'a>(v: &'a Value, key: &str) -> Option<&'a str> {
    v.get(key).and_then(Value::as_str)
}

/// Returns an optional integer field.
pub fn int(v: &Value, key: &str) -> Option<i64> {
    v.get(key).and_then(Value::as_i64)
}

/// Returns a boolean field; false if absent.
pub fn flag(v: &Value, key: &str) -> bool {
    v.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns a list field; empty if absent.
pub fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v.get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Returns the strings of a list field.
pub fn texts<'a>(v: &'a Value, key: &str) -> Vec<&'a str> {
    list(v, key).iter().filter_map(Value::as_str).collect()
}

/// Returns the entries of a map field; none if absent.
pub fn entries<'a>(v: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    v.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Returns a field if it is present and not null.
pub fn opt<'a>(v: &'a Value, key: &str) -> Option<&'a Value> {
    v.get(key).filter(|x| !x.is_null())
}

/// Returns a field; null if absent.
pub fn get<'a>(v: &'a Value, key: &str) -> &'a Value {
    v.get(key).unwrap_or(&Value::Null)
}

/// Returns the value at a JSON pointer, as [`Value::pointer`], but without memory for each step.
/// Without escapes (`~0`, `~1`): names with a slash or a tilde need [`Value::pointer`].
///
/// # Panics
/// In builds with debug assertions, the pointer has an escape.
pub fn find<'a>(v: &'a Value, pointer: &str) -> Option<&'a Value> {
    debug_assert!(!pointer.contains('~'), "{pointer} has an escape");
    let mut names = pointer.split('/').skip(1);
    names.try_fold(v, |at, name| match at {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        other => other.get(name),
    })
}

/// Returns whether a field is present and not null.
pub fn has(v: &Value, key: &str) -> bool {
    opt(v, key).is_some()
}

/// Returns whether a field is equal in both; null and empty maps and lists equal an absent field.
pub fn same(a: &Value, b: &Value, key: &str) -> bool {
    equal(get(a, key), get(b, key))
}

/// Sets a field if it is absent or null.
pub fn fill(v: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = v.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets a string field if it is absent, null or empty.
pub fn fill_text(v: &mut Value, key: &str, value: &str) {
    // Go's plain strings cannot be absent, so defaulting treats an empty one as unset.
    if text(v, key).is_empty() && v.get(key).is_none_or(|x| x.is_null() || x.is_string()) {
        set(v, key, value);
    }
}

/// Sets an integer field if it is absent, null or zero.
pub fn fill_int(v: &mut Value, key: &str, value: i64) {
    // The same holds for plain integers. Fields that may be zero are pointers and use `fill`.
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

/// Returns a present object field for modification.
pub fn at_mut<'a>(v: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    v.get_mut(key).filter(|x| x.is_object())
}

/// Returns an object field for modification, creating it if absent.
pub fn make<'a>(v: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let entry = v
        .as_object_mut()?
        .entry(key.to_owned())
        .or_insert(Value::Null);
    // An explicit null means absent, as for Go's decoder.
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    Some(entry).filter(|x| x.is_object())
}

/// Returns the elements of a list field for modification.
pub fn each_mut<'a>(v: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    v.get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}
