//! Fits a stored set to a schema that has changed since.

use crate::path::Step;
use crate::set::FieldSet;
use crate::shape::Shape;

/// Replaces the fields below values that have become atomic by the values themselves. Otherwise
/// their owner would not conflict with a change of the value as a whole.
///
/// As upstream, the owner of a value that was atomic keeps that value only: which fields the owner
/// set is not known.
pub(crate) fn reconcile_set(shape: Shape<'_>, set: &mut FieldSet) {
    if matches!(shape, Shape::Atomic) {
        if !set.children.is_empty() {
            set.children.clear();
            set.member = true;
        }
        return;
    }
    for (step, child) in &mut set.children {
        let below = match step {
            Step::Field(name) if shape.is_map() => shape.member(name),
            Step::Key(_) | Step::Value(_) if shape.is_list() => shape.element(),
            _ => continue,
        };
        reconcile_set(below, child);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{ApplyError, Conflict, Versions, Writer, apply_intent, track_update};
    use api_kinds::{CustomSchema, ObjectSchema};
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Returns a schema with one field `x` in `spec`.
    fn schema_with(field: Value) -> ObjectSchema {
        let spec = json!({"type": "object", "properties": {"x": field}});
        let document = json!({"type": "object", "properties": {"spec": spec}});
        let version = json!({"schema": {"openAPIV3Schema": document}});
        ObjectSchema::Custom(Arc::new(CustomSchema::parse(&json!({}), &version).unwrap()))
    }

    fn list(list_type: &str) -> Value {
        let mut list = json!({"type": "array", "x-kubernetes-list-type": list_type,
            "items": {"type": "object", "properties": {"k": {"type": "string"},
                "v": {"type": "integer"}}}});
        if list_type == "map" {
            list["x-kubernetes-list-map-keys"] = json!(["k"]);
        }
        list
    }

    fn map(map_type: &str) -> Value {
        json!({"type": "object", "x-kubernetes-map-type": map_type,
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}})
    }

    fn writer<'a>(manager: &'a str, schema: &'a ObjectSchema) -> Writer<'a> {
        Writer {
            manager,
            api_version: "e.io/v1",
            subresource: "",
            schema,
            versions: Versions::NONE,
            ignored: &[],
            now: "2026-01-01T00:00:00Z",
        }
    }

    fn object(x: &Value) -> Value {
        json!({"apiVersion": "e.io/v1", "metadata": {"name": "a"}, "spec": {"x": x}})
    }

    #[test]
    fn owner_of_a_part_conflicts_after_the_whole_became_atomic() {
        for (before, after, x, next) in [
            (
                list("map"),
                list("atomic"),
                json!([{"k": "a", "v": 1}]),
                json!([{"k": "b"}]),
            ),
            (
                map("granular"),
                map("atomic"),
                json!({"k": "a", "v": 1}),
                json!({"k": "a"}),
            ),
        ] {
            let (before, after) = (schema_with(before), schema_with(after));
            let live = apply_intent(&writer("a", &before), None, &object(&x), false);
            let live = live.unwrap().object;
            let refused = apply_intent(&writer("b", &after), Some(&live), &object(&next), false);
            let conflict = Conflict {
                manager: "\"a\"".to_owned(),
                field: ".spec.x".to_owned(),
            };
            assert_eq!(refused.unwrap_err(), ApplyError::Conflicts(vec![conflict]));
            // The applier itself removes the value as a whole.
            let none = json!({"apiVersion": "e.io/v1", "metadata": {"name": "a"}, "spec": {}});
            let left = apply_intent(&writer("a", &after), Some(&live), &none, false);
            assert_eq!(left.unwrap().object["spec"], json!({}), "{x}");
            // An update takes the value from its owner.
            let mut updated = live.clone();
            updated["spec"]["x"] = next.clone();
            track_update(&writer("b", &after), Some(&live), &mut updated).unwrap();
            let owners = updated["metadata"]["managedFields"].as_array().unwrap();
            let fields: Vec<&Value> = owners.iter().map(|owner| &owner["fieldsV1"]).collect();
            assert_eq!(fields, [&json!({"f:spec": {"f:x": {}}})], "{x}");
        }
    }

    #[test]
    fn owner_of_the_whole_keeps_it_after_it_became_granular() {
        for (before, after, x, next) in [
            (
                list("atomic"),
                list("map"),
                json!([{"k": "a", "v": 1}]),
                json!([{"k": "b"}]),
            ),
            (
                map("atomic"),
                map("granular"),
                json!({"k": "a"}),
                json!({"v": 1}),
            ),
        ] {
            let (before, after) = (schema_with(before), schema_with(after));
            let live = apply_intent(&writer("a", &before), None, &object(&x), false);
            let live = live.unwrap().object;
            let both = apply_intent(&writer("b", &after), Some(&live), &object(&next), false);
            let both = both.unwrap().object;
            let owners = both["metadata"]["managedFields"].as_array().unwrap();
            assert_eq!(owners[0]["fieldsV1"], json!({"f:spec": {"f:x": {}}}), "{x}");
            assert_eq!(owners[1]["manager"], "b", "{x}");
        }
    }

    #[test]
    fn set_without_an_atomic_value_is_unchanged() {
        let scalar = schema_with(json!({"type": "string"}));
        let free =
            schema_with(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let pods = &api_kinds::find("", "v1", "pods").unwrap().schema;
        for (schema, fields) in [
            (&scalar, json!({"f:spec": {"f:x": {"f:old": {}}}})),
            (
                &free,
                json!({"f:spec": {"f:x": {"f:a": {"k:{\"b\":1}": {}}}}}),
            ),
            (&scalar, json!({"f:other": {"f:x": {"v:1": {}}}})),
            (
                pods,
                json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {},
                "f:ports": {"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}}},
                "f:resources": {"f:limits": {"f:cpu": {}}}}}, "f:nodeSelector": {}}}),
            ),
        ] {
            let stored = FieldSet::from_json(&fields);
            let mut set = stored.clone();
            reconcile_set(Shape::of_object(schema), &mut set);
            assert_eq!(set, stored, "{fields}");
        }
    }
}
