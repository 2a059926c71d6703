//! Defaulting: fills in absent fields from the schema.

use crate::model::Schema;
use serde_json::Value;

/// Sets absent fields to their defaults, and nulls whose schema isn't nullable.
pub fn apply_defaults(schema: &Schema, object: &mut Value) {
    match object {
        Value::Object(map) => {
            for property in &schema.properties {
                let Some(default) = &property.schema.default else {
                    continue;
                };
                let absent = match map.get(&*property.name) {
                    None => true,
                    Some(value) => value.is_null() && !property.schema.nullable,
                };
                if absent {
                    map.insert(property.name.to_string(), (**default).clone());
                }
            }
            for (name, value) in map {
                if let Some(inner) = schema.member(name) {
                    // The defaults of properties were set above.
                    if schema.property(name).is_none() {
                        replace_null(inner, value);
                    }
                    apply_defaults(inner, value);
                }
            }
        }
        Value::Array(all) => {
            let Some(items) = &schema.items else {
                return;
            };
            for value in all {
                replace_null(items, value);
                apply_defaults(items, value);
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = (**default).clone();
    }
}

/// Removes nulls from maps if their schema is neither nullable nor has a default. Called before
/// [`apply_defaults`] when an object is written.
pub fn prune_nulls(schema: &Schema, object: &mut Value) {
    match object {
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
