//! Field numbers of `openapi.v3`. If a reference is allowed, the value itself has number 1 and the
//! reference number 2.

use serde_json::Value;

use crate::gnostic::message::{Message, Part, map_entry_message};

const TEXT: Part = Part::Text;
const TEXTS: Part = Part::Each(&Part::Text);

pub(super) static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, TEXT),
        ("info", 2, Part::One(&INFO)),
        ("paths", 4, Part::One(&PATHS)),
        ("components", 5, Part::One(&COMPONENTS)),
    ],
    extensions: 9,
    others: None,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, TEXT),
        ("description", 2, TEXT),
        ("version", 6, TEXT),
    ],
    extensions: 7,
    others: None,
};

static PATHS: Message = Message {
    fields: &[],
    extensions: 2,
    others: Some((1, Part::One(&PATH_ITEM))),
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 4, Part::One(&OPERATION)),
        ("put", 5, Part::One(&OPERATION)),
        ("post", 6, Part::One(&OPERATION)),
        ("delete", 7, Part::One(&OPERATION)),
        ("options", 8, Part::One(&OPERATION)),
        ("head", 9, Part::One(&OPERATION)),
        ("patch", 10, Part::One(&OPERATION)),
        (
            "parameters",
            13,
            Part::Each(&Part::In(&[1], &Part::One(&PARAMETER))),
        ),
    ],
    extensions: 14,
    others: None,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, TEXTS),
        ("description", 3, TEXT),
        ("operationId", 5, TEXT),
        (
            "parameters",
            6,
            Part::Each(&Part::In(&[1], &Part::One(&PARAMETER))),
        ),
        ("requestBody", 7, Part::In(&[1], &Part::One(&REQUEST_BODY))),
        ("responses", 8, Part::One(&RESPONSES)),
        ("deprecated", 10, Part::Bool),
    ],
    extensions: 13,
    others: None,
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, TEXT),
        ("in", 2, TEXT),
        ("description", 3, TEXT),
        ("required", 4, Part::Bool),
        ("schema", 10, Part::Choice(select_schema_type)),
    ],
    extensions: 14,
    others: None,
};

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, TEXT),
        ("content", 2, Part::One(&MEDIA_TYPES)),
        ("required", 3, Part::Bool),
    ],
    extensions: 4,
    others: None,
};

static RESPONSES: Message = Message {
    fields: &[],
    extensions: 3,
    others: Some((2, Part::In(&[1], &Part::One(&RESPONSE)))),
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, TEXT),
        ("content", 3, Part::One(&MEDIA_TYPES)),
    ],
    extensions: 5,
    others: None,
};

static MEDIA_TYPES: Message = map_entry_message(Part::One(&MEDIA_TYPE));

static MEDIA_TYPE: Message = Message {
    fields: &[("schema", 1, Part::Choice(select_schema_type))],
    extensions: 5,
    others: None,
};

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, Part::One(&SCHEMAS)),
        ("securitySchemes", 7, Part::One(&SECURITY_SCHEMES)),
    ],
    extensions: 10,
    others: None,
};

static SECURITY_SCHEMES: Message = map_entry_message(Part::In(&[1], &Part::One(&SECURITY_SCHEME)));

static SECURITY_SCHEME: Message = Message {
    fields: &[
        ("type", 1, TEXT),
        ("description", 2, TEXT),
        ("name", 3, TEXT),
        ("in", 4, TEXT),
    ],
    extensions: 9,
    others: None,
};

static SCHEMAS: Message = map_entry_message(Part::Choice(select_schema_type));

/// Chooses between a schema and a reference to one.
fn select_schema_type(value: &Value) -> (&'static [u32], &'static Message) {
    if value.get("$ref").is_some() {
        (&[2], &REFERENCE)
    } else {
        (&[1], &SCHEMA)
    }
}

static REFERENCE: Message = Message {
    fields: &[("$ref", 1, TEXT)],
    extensions: 0,
    others: None,
};

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, Part::Bool),
        ("externalDocs", 6, Part::One(&EXTERNAL_DOCS)),
        ("example", 7, Part::Any),
        ("title", 9, TEXT),
        ("multipleOf", 10, Part::Double),
        ("maximum", 11, Part::Double),
        ("exclusiveMaximum", 12, Part::Bool),
        ("minimum", 13, Part::Double),
        ("exclusiveMinimum", 14, Part::Bool),
        ("maxLength", 15, Part::Int),
        ("minLength", 16, Part::Int),
        ("pattern", 17, TEXT),
        ("maxItems", 18, Part::Int),
        ("minItems", 19, Part::Int),
        ("uniqueItems", 20, Part::Bool),
        ("maxProperties", 21, Part::Int),
        ("minProperties", 22, Part::Int),
        ("required", 23, TEXTS),
        ("enum", 24, Part::Each(&Part::Any)),
        ("type", 25, TEXT),
        ("allOf", 26, Part::Each(&Part::Choice(select_schema_type))),
        ("oneOf", 27, Part::Each(&Part::Choice(select_schema_type))),
        ("anyOf", 28, Part::Each(&Part::Choice(select_schema_type))),
        ("not", 29, Part::One(&SCHEMA)),
        (
            "items",
            30,
            Part::In(&[1], &Part::Choice(select_schema_type)),
        ),
        ("properties", 31, Part::One(&SCHEMAS)),
        (
            "additionalProperties",
            32,
            Part::BoolOr(&Part::In(&[1], &Part::Choice(select_schema_type))),
        ),
        ("default", 33, Part::Scalar),
        ("description", 34, TEXT),
        ("format", 35, TEXT),
    ],
    extensions: 36,
    others: None,
};

static EXTERNAL_DOCS: Message = Message {
    fields: &[("description", 1, TEXT), ("url", 2, TEXT)],
    extensions: 3,
    others: None,
};
