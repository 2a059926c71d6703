//! Chooses between the rules of built-in kinds and those of custom resources.

use crate::write::Write;
use api_kinds::ObjectSchema;
use api_validation::FieldError;
use apiserver_convert::coerce_changed;
use serde_json::Value;

fn has_status(write: &Write) -> bool {
    write.resource.subresource("status").is_some()
}

/// Fills in absent fields.
pub(crate) fn default_object(write: &Write, object: &mut Value) {
    // A custom resource may have the group and kind that a rule is for.
    match &write.resource.schema {
        ObjectSchema::Custom(schema) => coerce_changed(schema, object),
        ObjectSchema::BuiltIn(_) => api_defaulting::default_object(write.kind(), object),
    }
}

/// Prepares a new object.
pub(crate) fn prepare_create(write: &Write, object: &mut Value) {
    if write.resource.is_custom() {
        api_strategy::custom::prepare_create(has_status(write), object);
    } else {
        api_strategy::prepare_create(write.kind(), object);
    }
}

/// Prepares a changed object.
pub(crate) fn prepare_update(write: &Write, subresource: &str, new: &mut Value, old: &Value) {
    if write.resource.is_custom() {
        api_strategy::custom::prepare_update(has_status(write), subresource, new, old);
    } else {
        api_strategy::prepare_update(write.kind(), subresource, new, old);
    }
}

/// Applies the changes that storing an object causes.
pub(crate) fn as_stored(write: &Write, object: &mut Value) {
    if !write.resource.is_custom() {
        api_strategy::as_stored(write.kind(), object);
    }
}

/// Validates a new object.
pub(crate) fn validate_create(write: &Write, object: &Value) -> Vec<FieldError> {
    if write.resource.is_custom() {
        api_validation::validate_custom_create(write.kind(), object)
    } else {
        api_validation::validate_create(write.kind(), object)
    }
}

/// Validates a changed object.
pub(crate) fn validate_update(
    write: &Write,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    if write.resource.is_custom() {
        api_validation::validate_custom_update(write.kind(), new, old)
    } else {
        api_validation::validate_update(write.kind(), subresource, new, old)
    }
}

/// Adds the warnings about a valid object to those of the write. Each is sent once, also if the
/// write is repeated after a conflict.
pub(crate) fn add_object_warnings(
    write: &mut Write,
    subresource: &str,
    object: &Value,
    old: Option<&Value>,
) {
    if write.resource.is_custom() {
        return;
    }
    for warning in api_validation::object_warnings(write.kind(), subresource, object, old) {
        if !write.warnings.contains(&warning) {
            write.warnings.push(warning);
        }
    }
}
