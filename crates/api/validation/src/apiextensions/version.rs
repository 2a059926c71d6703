//! Fields of one version of a custom resource definition.

use crate::field::{Errors, Path};
use api_meta::tree::{flag, list, opt, opt_text, text};
use api_structural::{PathSyntax, ValueType, parse_unchecked, resolve_field_path};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum number of selectable fields: the watch cache compares them for each event.
pub(super) const SELECTABLE_LIMIT: usize = 8;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Validates the warning that clients of a deprecated version receive as an HTTP header.
pub(super) fn validate_deprecation(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(warning) = opt_text(version, "deprecationWarning") else {
        return;
    };
    let at = path.child("deprecationWarning");
    // The warning is only sent for deprecated versions, so it would have no effect.
    if !flag(version, "deprecated") {
        errors.invalid(&at, warning, "can only be set for deprecated versions");
        return;
    }
    // Upstream compares the length in bytes, although its message says characters.
    if warning.len() > 256 {
        errors.invalid(&at, warning, "must be <= 256 characters long");
    }
    if warning.is_empty() {
        errors.invalid(&at, warning, "must not be an empty string");
    }
    // A control character could end the header line and add another one.
    if let Some((i, _)) = warning.char_indices().find(|(_, c)| !is_printable(*c)) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        );
        errors.invalid(&at, warning, detail);
    }
}

fn is_printable(c: char) -> bool {
    // The escaped form of a text shows its printable characters as they are, except for these. A
    // combining character needs one before it.
    matches!(c, '"' | '\'' | '\\') || format!("a{c}").escape_debug().count() == 2
}

/// Validates the subresources.
pub(super) fn validate_subresources(all: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(scale) = opt(all, "scale") else {
        return;
    };
    // A client with access to the subresource `scale` alone writes through these paths. They must
    // not lead to metadata or to the wrong half of the object.
    let required = [
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
    ];
    let at = path.child("scale");
    for (field, prefix) in required {
        let value = text(scale, field);
        let at = at.child(field);
        if value.is_empty() {
            errors.required(&at, "");
        } else if !value.starts_with('.') {
            errors.invalid(&at, value, NO_PATH);
        } else if !value.starts_with(prefix) {
            let parent = prefix.trim_end_matches('.');
            errors.invalid(&at, value, format!("should be a json path under {parent}"));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    let at = at.child("labelSelectorPath");
    if selector.is_empty() {
        return;
    }
    if !selector.starts_with('.') {
        errors.invalid(&at, selector, NO_PATH);
    } else if !selector.starts_with(".spec.") && !selector.starts_with(".status.") {
        let detail = "should be a json path under either .spec or .status";
        errors.invalid(&at, selector, detail);
    }
}

const NO_PATH: &str = "must be a simple json path starting with .";

/// Validates the printer columns.
pub(super) fn validate_columns(version: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("additionalPrinterColumns");
    for (i, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let at = path.index(i);
        if text(column, "name").is_empty() {
            errors.required(&at.child("name"), "");
        }
        let value_type = text(column, "type");
        let known = format!("must be one of {}", COLUMN_TYPES.join(","));
        if value_type.is_empty() {
            errors.required(&at.child("type"), known);
        } else if !COLUMN_TYPES.contains(&value_type) {
            errors.invalid(&at.child("type"), value_type, known);
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&at.child("format"), format, detail);
        }
        let json_path = text(column, "jsonPath");
        // The path has this spelling upstream, although the field is `jsonPath`.
        let at = at.child("JSONPath");
        if json_path.is_empty() {
            errors.required(&at, "");
        } else if !json_path.starts_with('.') {
            errors.invalid(&at, json_path, NO_PATH);
        }
    }
}

/// Validates the fields of field selectors. `missing` is the message for fields without a schema,
/// with the name of the schema's field.
pub(super) fn validate_selectable_fields(
    version: &Value,
    schema: Option<&Value>,
    many_allowed: bool,
    [missing, schema_field]: [&str; 2],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let all = list(version, "selectableFields");
    let at = path.child("selectableFields");
    if all.is_empty() {
        return;
    }
    let Some(schema) = schema else {
        errors.invalid(&at, "", missing);
        return;
    };
    let schema = parse_unchecked(schema).unwrap_or_else(|message| {
        let at = path.child(schema_field);
        errors.invalid(&at.child("openAPIV3Schema"), "", message);
        // The paths have their errors nevertheless, as upstream.
        Arc::default()
    });
    let mut known = HashSet::new();
    for (i, field) in all.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let at = at.index(i);
        let at = at.child("jsonPath");
        if json_path.is_empty() {
            errors.required(&at, "");
            continue;
        }
        let (segments, found) = match resolve_field_path(json_path, &schema, PathSyntax::Dots) {
            Ok(found) => found,
            Err(message) => {
                errors.invalid(&at, json_path, format!("is an invalid path: {message}"));
                continue;
            }
        };
        // Name and namespace can be selected for all kinds, and other metadata for none.
        if segments.first().is_some_and(|first| first == "metadata") {
            errors.invalid(&at, json_path, "must not point to fields in metadata");
        }
        let value_type = found.and_then(|schema| schema.value_type);
        let scalar = [ValueType::String, ValueType::Boolean, ValueType::Integer];
        if !value_type.is_some_and(|value_type| scalar.contains(&value_type)) {
            errors.invalid(&at, json_path, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.");
        }
        if !known.insert(segments) {
            errors.duplicate(&at, json_path);
        }
    }
    // Invalid paths and duplicates have errors already and don't count, as upstream.
    if known.len() > SELECTABLE_LIMIT && !many_allowed {
        errors.too_many(&at, known.len(), SELECTABLE_LIMIT);
    }
}
