//! Correlation of the old and the new value of a field, for ratcheting and rules about changes.

use crate::model::{ListKind, Schema, ValueType};
use serde_json::Value;
use std::collections::HashMap;

/// A new value, the old one at the same place, and their schema.
#[derive(Clone, Copy, Debug)]
pub struct Correlation<'a> {
    /// The schema of both.
    pub schema: &'a Schema,
    /// The value that is written.
    pub new: &'a Value,
    /// The value that is stored.
    pub old: &'a Value,
}

impl<'a> Correlation<'a> {
    /// Returns the correlation of a member that both values have and the schema knows.
    pub fn member(&self, name: &str) -> Option<Correlation<'a>> {
        Some(Correlation {
            schema: self.schema.member(name)?,
            new: self.new.as_object()?.get(name)?,
            old: self.old.as_object()?.get(name)?,
        })
    }

    /// Returns the correlations of the elements of the new list. Only lists of type map have any:
    /// by their keys.
    pub fn elements(&self) -> Elements<'a> {
        // Built once for each list: a search of the old list for each new element would take
        // quadratic time.
        let mut by_key = HashMap::new();
        let keyed = self.schema.list_type == Some(ListKind::Map)
            && self.schema.value_type == Some(ValueType::Array);
        if let (true, Value::Array(old)) = (keyed, self.old) {
            for element in old {
                if let Some(key) = build_key(self.schema, element) {
                    // The first one counts, if a stored list has equal keys.
                    by_key.entry(key).or_insert(element);
                }
            }
        }
        Elements {
            schema: self.schema,
            by_key,
        }
    }

    /// Returns whether the value hasn't changed. The order of a list of type map doesn't matter.
    pub fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) if new.len() != old.len() => false,
            // Keys are unique, so equal lengths and a match for each new element mean that no old
            // one is left over.
            (Value::Array(new), Value::Array(_))
                if self.schema.list_type == Some(ListKind::Map) =>
            {
                let elements = self.elements();
                let unchanged = |element| elements.find(element).is_some_and(|e| e.is_unchanged());
                new.iter().all(unchanged)
            }
            (Value::Object(new), Value::Object(old)) => {
                // A field without a schema counts as changed, as upstream has it.
                let unchanged = |name: &String| self.member(name).is_some_and(|m| m.is_unchanged());
                new.len() == old.len() && new.keys().all(unchanged)
            }
            (new, old) => new == old,
        }
    }
}

/// The elements of an old list, by key.
pub struct Elements<'a> {
    schema: &'a Schema,
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Elements<'a> {
    /// Returns the correlation of an element of the new list.
    pub fn find(&self, new: &'a Value) -> Option<Correlation<'a>> {
        if self.by_key.is_empty() {
            return None;
        }
        let key = build_key(self.schema, new)?;
        Some(Correlation {
            schema: self.schema.items.as_deref()?,
            new,
            old: self.by_key.get(&key)?,
        })
    }
}

/// Returns the keys of an element as text, if all are present and scalars.
fn build_key(schema: &Schema, element: &Value) -> Option<String> {
    let map = element.as_object()?;
    let keys = schema.map_keys();
    if keys.is_empty() {
        return None;
    }
    let mut out = String::new();
    for key in keys {
        let value = map.get(&**key)?;
        // A key that is a list or an object would make this text as large as the element.
        if !(value.is_string() || value.is_number() || value.is_boolean()) {
            return None;
        }
        out.push_str(&value.to_string());
        // A separator that no JSON text contains unescaped, so that two keys can't run into each
        // other.
        out.push('\0');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::parse::parse_unchecked;
    use serde_json::json;

    fn is_unchanged(schema: Value, new: Value, old: Value) -> bool {
        let schema = parse_unchecked(&schema).unwrap();
        Correlation {
            schema: &schema,
            new: &new,
            old: &old,
        }
        .is_unchanged()
    }

    fn list(kind: &str) -> Value {
        json!({"type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}})
    }

    #[test]
    fn order_matters_except_in_maps() {
        let (a, b) = (json!({"k": "a", "v": 1}), json!({"k": "b", "v": 2}));
        assert!(is_unchanged(list("map"), json!([a, b]), json!([b, a])));
        assert!(!is_unchanged(list("atomic"), json!([a, b]), json!([b, a])));
        assert!(is_unchanged(list("atomic"), json!([a, b]), json!([a, b])));
        assert!(!is_unchanged(list("map"), json!([a]), json!([a, b])));
        assert!(!is_unchanged(
            list("map"),
            json!([{"k": "a", "v": 2}]),
            json!([a])
        ));
        assert!(!is_unchanged(
            list("map"),
            json!([{"v": 2}]),
            json!([{"v": 2}])
        ));
    }

    #[test]
    fn fields_without_a_schema_count_as_changed() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert!(is_unchanged(
            schema.clone(),
            json!({"a": "x"}),
            json!({"a": "x"})
        ));
        assert!(!is_unchanged(
            schema.clone(),
            json!({"b": "x"}),
            json!({"b": "x"})
        ));
        assert!(!is_unchanged(schema.clone(), json!({}), json!({"a": "x"})));
        assert!(!is_unchanged(schema, json!({"a": null}), json!({"a": "x"})));
    }

    #[test]
    fn scalars_are_compared_exactly() {
        assert!(is_unchanged(json!({"type": "integer"}), json!(1), json!(1)));
        assert!(!is_unchanged(
            json!({"type": "number"}),
            json!(1),
            json!(1.0)
        ));
        assert!(is_unchanged(
            json!({"type": "number"}),
            json!(null),
            json!(null)
        ));
    }

    #[test]
    fn elements_are_found_by_all_keys() {
        let mut schema = list("map");
        schema["x-kubernetes-list-map-keys"] = json!(["k", "v"]);
        let schema = parse_unchecked(&schema).unwrap();
        let old = json!([{"k": "a", "v": 1}, {"k": "a", "v": 2}]);
        let new = json!([{"k": "a", "v": 2}, {"k": "a"}]);
        let elements = Correlation {
            schema: &schema,
            new: &new,
            old: &old,
        }
        .elements();
        assert_eq!(elements.find(&new[0]).map(|e| e.old), Some(&old[1]));
        assert!(elements.find(&new[1]).is_none());
    }
}
