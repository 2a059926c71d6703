//! Accessors for `apiVersion`, `kind` and `metadata` of an object tree.
//!
//! Reading never fails: an absent field or one of the wrong type reads as empty, because the schema
//! was checked when the object was decoded. Writing creates missing parents.

use serde_json::{Map, Value};

/// Read and write access to an object's metadata.
pub trait Meta {
    /// Returns a string of `metadata`; empty if absent.
    fn meta_str(&self, field: &str) -> &str;
    /// Returns `metadata` as a map, if there is one.
    fn metadata(&self) -> Option<&Map<String, Value>>;
    /// Returns `metadata`, creating it if necessary.
    fn metadata_mut(&mut self) -> &mut Map<String, Value>;
    /// Returns `metadata.name`.
    fn name(&self) -> &str {
        self.meta_str("name")
    }
    /// Returns `metadata.namespace`.
    fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }
    /// Returns `metadata.uid`.
    fn uid(&self) -> &str {
        self.meta_str("uid")
    }
    /// Returns `metadata.resourceVersion`.
    fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion")
    }
    /// Returns whether `metadata.deletionTimestamp` is set.
    fn is_being_deleted(&self) -> bool {
        !self.meta_str("deletionTimestamp").is_empty()
    }
    /// Returns `metadata.finalizers`.
    fn finalizers(&self) -> Vec<&str> {
        let list = self
            .metadata()
            .and_then(|m| m.get("finalizers"))
            .and_then(Value::as_array);
        list.map(|l| l.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default()
    }
    /// Returns `metadata.labels[key]`.
    fn label(&self, key: &str) -> Option<&str> {
        self.metadata()?.get("labels")?.get(key)?.as_str()
    }
    /// Returns `metadata.annotations[key]`.
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata()?.get("annotations")?.get(key)?.as_str()
    }
    /// Returns `metadata.labels`.
    fn labels(&self) -> Option<&Map<String, Value>> {
        self.metadata()?.get("labels")?.as_object()
    }
    /// Sets a string of `metadata`, or removes it if it is empty.
    fn set_meta_str(&mut self, field: &str, value: &str) {
        let metadata = self.metadata_mut();
        // Go omits empty strings, and trees that encode equally must be equal.
        if value.is_empty() {
            metadata.remove(field);
        } else {
            metadata.insert(field.to_owned(), Value::String(value.to_owned()));
        }
    }
}

impl Meta for Value {
    fn meta_str(&self, field: &str) -> &str {
        self.metadata()
            .and_then(|m| m.get(field))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn metadata(&self) -> Option<&Map<String, Value>> {
        self.get("metadata")?.as_object()
    }

    fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        object_at(self, "metadata")
    }
}

/// Returns the object under `key`, creating it if it is missing or not an object.
pub fn object_at<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    as_object(
        as_object(value)
            .entry(key.to_owned())
            .or_insert_with(|| Value::Object(Map::new())),
    )
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    // Only objects that never passed the schema have another type here. A write makes them right.
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Returns the value at a path of object keys.
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, key| v.get(key))
}

/// Returns the string at a path of object keys; empty if absent.
pub fn str_at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}
