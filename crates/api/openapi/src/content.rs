//! Media types, bodies and responses of operations.

use crate::schemas::PREFIX;
use serde_json::{Map, Value, json};

/// Media types of bodies; CBOR is not supported.
pub(crate) const FORMATS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
pub(crate) const STREAMS: &[&str] = &[
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
pub(crate) const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(crate) fn schema_reference(name: &str) -> Value {
    json!({"$ref": format!("{PREFIX}{name}")})
}

fn content_types(formats: &[&str], schema: &Value) -> Value {
    formats
        .iter()
        .map(|format| ((*format).to_owned(), json!({"schema": schema})))
        .collect::<Map<_, _>>()
        .into()
}

pub(crate) fn request_body(formats: &[&str], name: &str) -> Value {
    json!({"content": content_types(formats, &schema_reference(name)), "required": true})
}

pub(crate) fn list_responses(codes: &[&str], formats: &[&str], schema: &Value) -> Value {
    let mut all = Map::new();
    for code in codes {
        let text = match *code {
            "201" => "Created",
            "202" => "Accepted",
            _ => "OK",
        };
        all.insert(
            (*code).to_owned(),
            json!({"description": text, "content": content_types(formats, schema)}),
        );
    }
    // Authentication precedes every handler, so upstream documents this code everywhere.
    all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    Value::Object(all)
}
