//! Media types, bodies and responses of operations.

use crate::schemas::PREFIX;
use api_kinds::Resource;
use serde_json::{Map, Value, json};

/// Media types of a resource's operations.
pub(crate) struct MediaTypes {
    /// Of requests, except for patches.
    pub(crate) bodies: &'static [&'static str],
    /// Of responses.
    pub(crate) responses: &'static [&'static str],
    /// Of watches.
    pub(crate) streams: &'static [&'static str],
    /// Of patches.
    pub(crate) patches: &'static [&'static str],
}

pub(crate) static BUILT_IN: MediaTypes = MediaTypes {
    bodies: &["*/*"],
    responses: &[
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ],
    streams: &[
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
    ],
    patches: &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ],
};

/// With the gate `CBORServingAndStorage`.
static WITH_CBOR: MediaTypes = MediaTypes {
    bodies: BUILT_IN.bodies,
    responses: &[
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/cbor",
    ],
    streams: &[
        "application/json;stream=watch",
        "application/vnd.kubernetes.protobuf;stream=watch",
        "application/cbor-seq",
    ],
    patches: &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/apply-patch+cbor",
    ],
};

/// Custom resources have no protobuf form and no strategic merge patch. As upstream, CBOR is not
/// listed for them, although they have it.
static CUSTOM: MediaTypes = MediaTypes {
    bodies: &["application/json", "application/yaml"],
    responses: &["application/json", "application/yaml"],
    streams: &[],
    patches: &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
    ],
};

/// Returns the media types of a resource.
pub(crate) fn media_types(resource: &Resource, serves_cbor: bool) -> &'static MediaTypes {
    if resource.is_custom() {
        &CUSTOM
    } else if serves_cbor {
        &WITH_CBOR
    } else {
        &BUILT_IN
    }
}

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
