//! Chooses between the rules of built-in kinds and those of custom resources.

use crate::write::Write;
use api_kinds::{CustomSchema, ObjectSchema};
use api_validation::{CustomOutcome, CustomRules, FieldError};
use apiserver_convert::coerce_changed;
use apiserver_request::User;
use base_task::{ComputeKind, compute};
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

fn custom_rules(schema: &CustomSchema) -> CustomRules<'_> {
    CustomRules {
        schema: &schema.structural,
        scale: schema.scale.as_ref(),
        rules: schema.rules(),
    }
}

/// Validates an object of a custom resource. Rules of its definition may take a second.
async fn validate_custom(
    user: &User,
    schema: &CustomSchema,
    validate: impl FnOnce(CustomRules<'_>) -> CustomOutcome,
) -> CustomOutcome {
    // The first write compiles the rules, which may take long, too.
    compute(user.compute_client(), ComputeKind::Evaluation, || {
        validate(custom_rules(schema))
    })
    .await
}

fn add_outcome(write: &mut Write, outcome: CustomOutcome) -> Vec<FieldError> {
    for warning in outcome.warnings {
        if !write.warnings.contains(&warning) {
            write.warnings.push(warning);
        }
    }
    outcome.errors
}

/// Validates a new object.
pub(crate) async fn validate_create(write: &mut Write, object: &Value) -> Vec<FieldError> {
    match &write.resource.schema {
        ObjectSchema::Custom(schema) => {
            let kind = write.kind();
            let outcome = validate_custom(&write.user, schema, |rules| {
                api_validation::validate_custom_create(kind, rules, object)
            });
            let outcome = outcome.await;
            add_outcome(write, outcome)
        }
        ObjectSchema::BuiltIn(_) => api_validation::validate_create(write.kind(), object),
    }
}

/// Validates a changed object.
pub(crate) async fn validate_update(
    write: &mut Write,
    subresource: &str,
    new: &Value,
    old: &Value,
) -> Vec<FieldError> {
    match &write.resource.schema {
        ObjectSchema::Custom(schema) => {
            let kind = write.kind();
            let outcome = validate_custom(&write.user, schema, |rules| {
                api_validation::validate_custom_update(kind, rules, subresource, new, old)
            });
            let outcome = outcome.await;
            add_outcome(write, outcome)
        }
        ObjectSchema::BuiltIn(_) => {
            api_validation::validate_update(write.kind(), subresource, new, old)
        }
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
