//! Field numbers of `openapi.v2`.

use serde_json::Value;

use crate::gnostic::message::{Message, Part, map_entry_message};

const TEXT: Part = Part::Text;
const TEXTS: Part = Part::Each(&Part::Text);
const ANYS: Part = Part::Each(&Part::Any);

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, TEXT),
        ("info", 2, Part::One(&INFO)),
        ("schemes", 5, TEXTS),
        ("consumes", 6, TEXTS),
        ("produces", 7, TEXTS),
        ("paths", 8, Part::One(&PATHS)),
        ("definitions", 9, Part::One(&SCHEMAS)),
        (
            "security",
            12,
            Part::Each(&Part::One(&SECURITY_REQUIREMENT)),
        ),
        ("securityDefinitions", 13, Part::One(&SECURITY_DEFINITIONS)),
    ],
    extensions: 16,
    others: None,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, TEXT),
        ("version", 2, TEXT),
        ("description", 3, TEXT),
    ],
    extensions: 7,
    others: None,
};

static PATHS: Message = Message {
    fields: &[],
    extensions: 1,
    others: Some((2, Part::One(&PATH_ITEM))),
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, Part::One(&OPERATION)),
        ("put", 3, Part::One(&OPERATION)),
        ("post", 4, Part::One(&OPERATION)),
        ("delete", 5, Part::One(&OPERATION)),
        ("options", 6, Part::One(&OPERATION)),
        ("head", 7, Part::One(&OPERATION)),
        ("patch", 8, Part::One(&OPERATION)),
        (
            "parameters",
            9,
            Part::Each(&Part::Choice(select_parameter_type)),
        ),
    ],
    extensions: 10,
    others: None,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, TEXTS),
        ("description", 3, TEXT),
        ("operationId", 5, TEXT),
        ("produces", 6, TEXTS),
        ("consumes", 7, TEXTS),
        (
            "parameters",
            8,
            Part::Each(&Part::Choice(select_parameter_type)),
        ),
        ("responses", 9, Part::One(&RESPONSES)),
        ("schemes", 10, TEXTS),
        ("deprecated", 11, Part::Bool),
    ],
    extensions: 13,
    others: None,
};

/// Chooses one of the three nested messages of a parameter by its location.
fn select_parameter_type(value: &Value) -> (&'static [u32], &'static Message) {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => (&[1, 1], &BODY),
        Some("path") => (&[1, 2, 4], &PATH_PARAMETER),
        // No operation of Kubernetes has header or form parameters, so the rest is the query.
        _ => (&[1, 2, 3], &QUERY_PARAMETER),
    }
}

static BODY: Message = Message {
    fields: &[
        ("description", 1, TEXT),
        ("name", 2, TEXT),
        ("in", 3, TEXT),
        ("required", 4, Part::Bool),
        ("schema", 5, Part::One(&SCHEMA)),
    ],
    extensions: 6,
    others: None,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Part::Bool),
        ("in", 2, TEXT),
        ("description", 3, TEXT),
        ("name", 4, TEXT),
        ("type", 5, TEXT),
        ("format", 6, TEXT),
        ("uniqueItems", 19, Part::Bool),
    ],
    extensions: 22,
    others: None,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Part::Bool),
        ("in", 2, TEXT),
        ("description", 3, TEXT),
        ("name", 4, TEXT),
        ("type", 6, TEXT),
        ("format", 7, TEXT),
        ("uniqueItems", 20, Part::Bool),
    ],
    extensions: 23,
    others: None,
};

static RESPONSES: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, Part::In(&[1], &Part::One(&RESPONSE)))),
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, TEXT),
        ("schema", 2, Part::In(&[1], &Part::One(&SCHEMA))),
    ],
    extensions: 5,
    others: None,
};

static SCHEMAS: Message = map_entry_message(Part::One(&SCHEMA));

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, TEXT),
        ("format", 2, TEXT),
        ("title", 3, TEXT),
        ("description", 4, TEXT),
        ("default", 5, Part::Any),
        ("multipleOf", 6, Part::Double),
        ("maximum", 7, Part::Double),
        ("exclusiveMaximum", 8, Part::Bool),
        ("minimum", 9, Part::Double),
        ("exclusiveMinimum", 10, Part::Bool),
        ("maxLength", 11, Part::Int),
        ("minLength", 12, Part::Int),
        ("pattern", 13, TEXT),
        ("maxItems", 14, Part::Int),
        ("minItems", 15, Part::Int),
        ("uniqueItems", 16, Part::Bool),
        ("maxProperties", 17, Part::Int),
        ("minProperties", 18, Part::Int),
        ("required", 19, TEXTS),
        ("enum", 20, ANYS),
        (
            "additionalProperties",
            21,
            Part::BoolOr(&Part::In(&[1], &Part::One(&SCHEMA))),
        ),
        ("type", 22, Part::In(&[1], &TEXT)),
        ("items", 23, Part::In(&[1], &Part::One(&SCHEMA))),
        ("allOf", 24, Part::Each(&Part::One(&SCHEMA))),
        ("properties", 25, Part::One(&SCHEMAS)),
        ("externalDocs", 29, Part::One(&EXTERNAL_DOCS)),
        ("example", 30, Part::Any),
    ],
    extensions: 31,
    others: None,
};

static EXTERNAL_DOCS: Message = Message {
    fields: &[("description", 1, TEXT), ("url", 2, TEXT)],
    extensions: 3,
    others: None,
};

static SECURITY_REQUIREMENT: Message = map_entry_message(Part::In(&[1], &TEXTS));

static SECURITY_DEFINITIONS: Message = map_entry_message(Part::In(&[2], &Part::One(&API_KEY)));

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, TEXT),
        ("name", 2, TEXT),
        ("in", 3, TEXT),
        ("description", 4, TEXT),
    ],
    extensions: 5,
    others: None,
};
