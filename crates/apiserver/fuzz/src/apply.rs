//! Target: applies and updates of several managers to one object.

use crate::choices::Choices;
use crate::schema_document::{build_document, build_fitting};
use crate::typed::{build_object, pick_message};
use crate::values::{build_value, measure_depth};
use api_kinds::{CustomSchema, ObjectSchema, Resource};
use apiserver_fields::{
    ApplyError, ConversionRequest, Versions, Writer, apply_intent, merge_object, track_update,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Levels that owners add below the object: `metadata.managedFields[].fieldsV1`.
const OWNER_LEVELS: usize = 4;
const GROUP: &str = "e.io";
const V1: &str = "e.io/v1";
const V2: &str = "e.io/v2";
/// Maximum number of conversions of a write between two versions, as in the registry.
const MAX_CONVERSIONS: usize = 8;

/// Applies a few intents, in two versions.
///
/// # Panics
/// If a result is deeper than what was applied, or if a write needs too many conversions.
pub fn run_apply(data: &[u8]) {
    let mut choices = Choices::new(data);
    let document = build_document(&mut choices);
    let message = if choices.hits(2) {
        pick_message(&mut choices)
    } else {
        None
    };
    let schemas = match message {
        Some(message) => [
            ObjectSchema::BuiltIn(message),
            ObjectSchema::BuiltIn(message),
        ],
        None => {
            let renamed = rename_spec(&document);
            let (Some(v1), Some(v2)) = (parse_schema(&document), parse_schema(&renamed)) else {
                return;
            };
            [v1, v2]
        }
    };
    let resources = build_versions(schemas);
    let mut live: Option<Value> = None;
    for _ in 0..1 + choices.below(4) {
        let mut intent = match message {
            Some(message) => build_object(&mut choices, message, 8, false),
            None => build_fitting(&mut choices, &document, 12),
        };
        if !intent.is_object() {
            intent = json!({"metadata": {"name": "a"}});
        }
        intent["apiVersion"] = V1.into();
        live = write(&mut choices, &resources, live, intent);
    }
}

fn parse_schema(document: &Value) -> Option<ObjectSchema> {
    let version = json!({"schema": {"openAPIV3Schema": document}});
    let schema = CustomSchema::parse(&json!({}), &version).ok()?;
    Some(ObjectSchema::Custom(Arc::new(schema)))
}

/// Returns the schema of v2, which calls the spec `content`.
fn rename_spec(document: &Value) -> Value {
    let mut document = document.clone();
    let properties = document.get_mut("properties");
    if let Some(properties) = properties.and_then(Value::as_object_mut)
        && let Some(spec) = properties.remove("spec")
    {
        properties.insert("content".to_owned(), spec);
    }
    document
}

fn build_versions(schemas: [ObjectSchema; 2]) -> Vec<Arc<Resource>> {
    let base = api_kinds::find("", "v1", "configmaps");
    let versions = base.into_iter().flat_map(|base| {
        let named = ["v1", "v2"].into_iter().zip(schemas.clone());
        named.map(|(version, schema)| {
            Arc::new(Resource {
                group: GROUP.into(),
                version: version.into(),
                schema,
                ..Resource::clone(base)
            })
        })
    });
    versions.collect()
}

/// Converts as a webhook does that renames a field.
fn convert(mut object: Value, api_version: &str, renames: bool) -> Value {
    let (old, new) = match api_version {
        V2 => ("spec", "content"),
        _ => ("content", "spec"),
    };
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), api_version.into());
        if renames && let Some(spec) = fields.remove(old) {
            fields.insert(new.to_owned(), spec);
        }
    }
    object
}

/// Writes an intent in one of the ways there are. Returns the new object.
fn write(
    choices: &mut Choices<'_>,
    resources: &[Arc<Resource>],
    live: Option<Value>,
    mut intent: Value,
) -> Option<Value> {
    let depth = live
        .as_ref()
        .map_or(0, measure_depth)
        .max(measure_depth(&intent));
    // Each level of an object is one of the owners' fields as well.
    let limit = depth * 2 + OWNER_LEVELS;
    let api_version = choices.pick(&[V1, V2]);
    let known = Versions::new(resources, GROUP);
    let schema = &known.find(api_version)?.schema;
    let renames = matches!(schema, ObjectSchema::Custom(_));
    let to_version = |object: Value| match object["apiVersion"] == api_version {
        true => object,
        false => convert(object, api_version, renames),
    };
    let before = live.clone().map(to_version);
    intent = to_version(intent);
    let writer = Writer {
        manager: choices.pick(&["m", "n", ""]),
        api_version,
        subresource: choices.pick(&["", "", "status"]),
        schema,
        versions: &known,
        ignored: &["status"],
        now: "2026-01-01T00:00:00Z",
    };
    let result = match choices.below(4) {
        0 => {
            set_owners(choices, &mut intent);
            convert_and_repeat(&writer, renames, |writer| {
                let mut new = intent.clone();
                track_update(writer, before.as_ref(), &mut new)?;
                Ok(new)
            })
        }
        1 => merge_object(schema, before.as_ref().unwrap_or(&json!({})), &intent).ok(),
        _ => {
            let force = choices.hits(2);
            convert_and_repeat(&writer, renames, |writer| {
                apply_intent(writer, before.as_ref(), &intent, force).map(|done| done.object)
            })
        }
    };
    if let Some(object) = &result {
        assert!(measure_depth(object) <= limit, "too deep: {object}");
    }
    result.or(live)
}

/// Repeats a write with the conversions that it requests.
fn convert_and_repeat(
    writer: &Writer<'_>,
    renames: bool,
    write: impl Fn(&Writer<'_>) -> Result<Value, ApplyError>,
) -> Option<Value> {
    let mut versions = writer.versions.clone();
    let mut conversions = 0;
    loop {
        let writer = Writer {
            versions: &versions,
            ..*writer
        };
        let request = match write(&writer) {
            Ok(object) => return Some(object),
            Err(ApplyError::Conflicts(_)) => return None,
            Err(ApplyError::Unconverted(request)) => request,
        };
        conversions += 1;
        assert!(conversions <= MAX_CONVERSIONS, "too many conversions");
        let ConversionRequest {
            object,
            api_version,
        } = request.clone();
        versions.add_converted(request, convert(object, &api_version, renames));
    }
}

/// Sets owners as a client may send them.
fn set_owners(choices: &mut Choices<'_>, object: &mut Value) {
    if !choices.hits(3) {
        return;
    }
    let fields = build_value(choices, 8);
    let entry = json!({"manager": "m", "operation": choices.pick(&["Apply", "Update", "odd"]),
        "apiVersion": choices.pick(&[V1, V2, "e.io/v3"]), "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": fields,
            "f:spec": {"k:{\"name\":\"a\"}": {".": {}}, "v:1": {}, "i:0": {}, "x": fields}}});
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("managedFields".to_owned(), json!([entry]));
    }
}
