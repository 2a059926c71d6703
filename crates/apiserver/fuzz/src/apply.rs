//! Target: applies and updates of several managers to one object.

use crate::choices::Choices;
use crate::schema_document::{build_document, build_fitting};
use crate::typed::{build_object, pick_message};
use crate::values::{build_value, measure_depth};
use api_kinds::{CustomSchema, ObjectSchema};
use apiserver_fields::{Versions, Writer, apply_intent, merge_object, track_update};
use serde_json::{Value, json};
use std::sync::Arc;

/// Levels that owners add below the object: `metadata.managedFields[].fieldsV1`.
const OWNER_LEVELS: usize = 4;

/// Applies a few intents.
///
/// # Panics
/// If a result is deeper than what was applied.
pub fn run_apply(data: &[u8]) {
    let mut choices = Choices::new(data);
    let document = build_document(&mut choices);
    let message = if choices.hits(2) {
        pick_message(&mut choices)
    } else {
        None
    };
    let schema = match message {
        Some(message) => ObjectSchema::BuiltIn(message),
        None => {
            let version = json!({"schema": {"openAPIV3Schema": document}});
            let Ok(schema) = CustomSchema::parse(&json!({}), &version) else {
                return;
            };
            ObjectSchema::Custom(Arc::new(schema))
        }
    };
    let mut live: Option<Value> = None;
    for _ in 0..1 + choices.below(4) {
        let mut intent = match &schema {
            ObjectSchema::BuiltIn(message) => build_object(&mut choices, message, 8, false),
            ObjectSchema::Custom(_) => build_fitting(&mut choices, &document, 12),
        };
        if !intent.is_object() {
            intent = json!({"metadata": {"name": "a"}});
        }
        live = write(&mut choices, &schema, live, intent);
    }
}

/// Writes an intent in one of the ways there are. Returns the new object.
fn write(
    choices: &mut Choices<'_>,
    schema: &ObjectSchema,
    live: Option<Value>,
    mut intent: Value,
) -> Option<Value> {
    let writer = Writer {
        manager: choices.pick(&["m", "n", ""]),
        api_version: choices.pick(&["v1", "v2"]),
        subresource: choices.pick(&["", "", "status"]),
        schema,
        versions: Versions::NONE,
        ignored: &["status"],
        now: "2026-01-01T00:00:00Z",
    };
    let depth = live
        .as_ref()
        .map_or(0, measure_depth)
        .max(measure_depth(&intent));
    // Each level of an object is one of the owners' fields as well.
    let limit = depth * 2 + OWNER_LEVELS;
    let result = match choices.below(4) {
        0 => {
            set_owners(choices, &mut intent);
            track_update(&writer, live.as_ref(), &mut intent)
                .ok()
                .map(|()| intent)
        }
        1 => merge_object(schema, live.as_ref().unwrap_or(&json!({})), &intent).ok(),
        _ => {
            let force = choices.hits(2);
            apply_intent(&writer, live.as_ref(), &intent, force)
                .ok()
                .map(|outcome| outcome.object)
        }
    };
    if let Some(object) = &result {
        assert!(measure_depth(object) <= limit, "too deep: {object}");
    }
    result.or(live)
}

/// Sets owners as a client may send them.
fn set_owners(choices: &mut Choices<'_>, object: &mut Value) {
    if !choices.hits(3) {
        return;
    }
    let fields = build_value(choices, 8);
    let entry = json!({"manager": "m", "operation": choices.pick(&["Apply", "Update", "odd"]),
        "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields,
            "f:spec": {"k:{\"name\":\"a\"}": {".": {}}, "v:1": {}, "i:0": {}, "x": fields}}});
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), json!([entry]));
    }
}
