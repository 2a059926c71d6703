//! Defaulting: fills in absent fields from the schema.

use crate::model::Schema;
use serde_json::Value;

/// Bytes of defaults for one object at most. Such an object is too large for the store: without the
/// limit, a list of empty objects whose items have a large default would fill the memory.
const MAX_DEFAULTED: usize = 3 * 1024 * 1024;

/// Sets absent fields to their defaults, and nulls whose schema isn't nullable, up to 3 MiB.
pub fn apply_defaults(schema: &Schema, object: &mut Value) {
    let mut left = Defaults {
        bytes: MAX_DEFAULTED,
        steps: MAX_STEPS,
    };
    left.apply(schema, object);
}

/// Properties that are looked at for one object at most: one object of each kind has far fewer, but
/// a list of empty objects times thousands of properties takes minutes.
const MAX_STEPS: usize = 20_000_000;

/// The limits that are left.
struct Defaults {
    bytes: usize,
    steps: usize,
}

impl Defaults {
    /// Returns the default, unless it exceeds what is left.
    fn take(&mut self, default: &Value) -> Option<Value> {
        let left = self.bytes.checked_sub(measure_value(default));
        self.bytes = left.unwrap_or_default();
        left.map(|_| default.clone())
    }

    fn apply(&mut self, schema: &Schema, object: &mut Value) {
        self.steps = self.steps.saturating_sub(schema.properties.len());
        if self.bytes == 0 || self.steps == 0 {
            return;
        }
        match object {
            Value::Object(map) => {
                for property in &schema.properties {
                    let Some(default) = &property.schema.default else {
                        continue;
                    };
                    let absent = match map.get(&*property.name) {
                        None => true,
                        // A null is what clients send to clear a field, so it is replaced as if the
                        // field were absent.
                        Some(value) => value.is_null() && !property.schema.nullable,
                    };
                    if absent && let Some(value) = self.take(default) {
                        map.insert(property.name.to_string(), value);
                        self.bytes = self.bytes.saturating_sub(property.name.len());
                    }
                }
                // Defaults may themselves lack fields, so the new values are visited as well.
                for (name, value) in map {
                    if let Some(inner) = schema.member(name) {
                        // The defaults of properties were set above.
                        if schema.property(name).is_none() {
                            self.replace_null(inner, value);
                        }
                        self.apply(inner, value);
                    }
                }
            }
            Value::Array(all) => {
                let Some(items) = &schema.items else {
                    return;
                };
                for value in all {
                    self.replace_null(items, value);
                    self.apply(items, value);
                }
            }
            _ => {}
        }
    }

    fn replace_null(&mut self, schema: &Schema, value: &mut Value) {
        if value.is_null()
            && !schema.nullable
            && let Some(default) = &schema.default
            && let Some(default) = self.take(default)
        {
            *value = default;
        }
    }
}

/// Returns the approximate size of a value as JSON. Its depth is bounded by the parser of the
/// definition.
fn measure_value(value: &Value) -> usize {
    match value {
        Value::Object(map) => {
            let members = map
                .iter()
                .map(|(name, value)| name.len() + 4 + measure_value(value));
            2 + members.sum::<usize>()
        }
        Value::Array(all) => {
            2 + all
                .iter()
                .map(|value| 1 + measure_value(value))
                .sum::<usize>()
        }
        Value::String(text) => text.len() + 2,
        _ => 4,
    }
}

/// Removes nulls from maps if their schema is neither nullable nor has a default. Called before
/// [`apply_defaults`] when an object is written.
pub fn prune_nulls(schema: &Schema, object: &mut Value) {
    match object {
        // Clients written in Go send null for empty maps and lists, which a schema without
        // `nullable` would reject.
        Value::Object(map) => map.retain(|name, value| {
            let Some(inner) = schema.member(name) else {
                // Without a schema nothing says that a null is wrong.
                return true;
            };
            if value.is_null() && !inner.nullable && inner.default.is_none() {
                return false;
            }
            prune_nulls(inner, value);
            true
        }),
        Value::Array(all) => {
            if let Some(items) = &schema.items {
                all.iter_mut().for_each(|value| prune_nulls(items, value));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::parse::parse_unchecked;
    use serde_json::json;

    fn check(schema: Value, object: Value, expected: Value) {
        let parsed = parse_unchecked(&schema).unwrap();
        let mut defaulted = object.clone();
        prune_nulls(&parsed, &mut defaulted);
        apply_defaults(&parsed, &mut defaulted);
        assert_eq!(defaulted, expected, "{schema} {object}");
        apply_defaults(&parsed, &mut defaulted);
        assert_eq!(defaulted, expected, "defaulting is idempotent");
    }

    #[test]
    fn defaults_of_a_long_list_have_a_limit() {
        let large = "x".repeat(100_000);
        let items =
            json!({"type": "object", "properties": {"a": {"type": "string", "default": large}}});
        let schema =
            parse_unchecked(&json!({"properties": {"l": {"type": "array", "items": items}}}));
        let mut object = json!({"l": vec![json!({}); 1_000]});
        apply_defaults(&schema.unwrap(), &mut object);
        let size = object.to_string().len();
        assert!(size > 1_000_000 && size < 4_000_000, "{size}");
    }

    #[test]
    fn absent_fields_get_their_defaults() {
        let schema =
            json!({"properties": {"a": {"default": 1}, "b": {"default": {"c": 2}}, "d": {}}});
        check(schema.clone(), json!({}), json!({"a": 1, "b": {"c": 2}}));
        check(schema, json!({"a": 0, "b": {}}), json!({"a": 0, "b": {}}));
    }

    #[test]
    fn defaults_apply_inside_of_defaults_lists_and_maps() {
        let inner = json!({"type": "object", "properties": {"x": {"default": "X"}}});
        let schema = json!({"properties": {
            "d": {"type": "object", "default": {}, "properties": {"x": {"default": "X"}}},
            "l": {"type": "array", "items": inner}, "m": {"type": "object", "additionalProperties": inner}}});
        check(
            schema,
            json!({"l": [{}, {"x": 1}], "m": {"k": {}}}),
            json!({"d": {"x": "X"}, "l": [{"x": "X"}, {"x": 1}], "m": {"k": {"x": "X"}}}),
        );
    }

    #[test]
    fn absent_objects_are_not_created_for_inner_defaults() {
        let schema =
            json!({"properties": {"a": {"type": "object", "properties": {"b": {"default": 1}}}}});
        check(schema.clone(), json!({}), json!({}));
        check(schema, json!({"a": {}}), json!({"a": {"b": 1}}));
    }

    #[test]
    fn nulls_are_kept_defaulted_or_removed() {
        let schema = json!({"properties": {
            "nullable": {"nullable": true, "default": 1}, "defaulted": {"default": 1}, "plain": {"type": "string"}}});
        check(
            schema,
            json!({"nullable": null, "defaulted": null, "plain": null, "unknown": null}),
            json!({"nullable": null, "defaulted": 1, "unknown": null}),
        );
    }

    #[test]
    fn nulls_in_lists_and_maps_are_replaced() {
        let schema = json!({"properties": {
            "l": {"type": "array", "items": {"default": "D"}},
            "m": {"type": "object", "additionalProperties": {"default": "D"}},
            "n": {"type": "array", "items": {"type": "string"}},
            "o": {"type": "object", "additionalProperties": {"type": "string"}}}});
        check(
            schema,
            json!({"l": [null, "x"], "m": {"k": null}, "n": [null], "o": {"k": null}}),
            json!({"l": ["D", "x"], "m": {"k": "D"}, "n": [null], "o": {}}),
        );
    }

    #[test]
    fn nested_nulls_are_removed() {
        let schema = json!({"properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}}});
        check(
            schema,
            json!({"a": {"b": null}, "l": [{"b": null}]}),
            json!({"a": {}, "l": [{}]}),
        );
    }
}
