//! Chooses between the rules of built-in kinds and those of custom resources.
//!
//! The rules of a built-in kind are written for the fields of one version. An object of a version
//! with other fields is converted to it, and back if a rule has changed it. Defaults are an
//! exception: as upstream, each version has its own.

use crate::write::{Write, kind_of};
use api_kinds::{CustomSchema, ObjectSchema, find_rule_version};
use api_meta::Kind;
use api_strategy::DisabledFields;
use api_validation::{CustomOutcome, CustomRules, FieldError};
use apiserver_convert::{coerce_changed, convert_object};
use apiserver_request::User;
use base_task::{ComputeKind, compute};
use serde_json::Value;
use std::borrow::Cow;

fn has_status(write: &Write) -> bool {
    write.resource.subresource("status").is_some()
}

/// Returns an object of a write in the version that the rules of its kind are written for.
pub(crate) fn as_rule_version<'a>(write: &Write, object: &'a Value) -> Cow<'a, Value> {
    match find_rule_version(&write.resource) {
        Some(rules) => Cow::Owned(convert_object(&write.resource, rules, object.clone())),
        None => Cow::Borrowed(object),
    }
}

/// Returns the kind in that version.
fn rule_kind(write: &Write) -> Kind<'_> {
    kind_of(find_rule_version(&write.resource).unwrap_or(&write.resource))
}

/// Changes an object of a built-in kind in that version.
fn change_as_rule_version(write: &Write, object: &mut Value, change: impl FnOnce(&mut Value)) {
    let Some(rules) = find_rule_version(&write.resource) else {
        return change(object);
    };
    let mut converted = convert_object(&write.resource, rules, object.take());
    change(&mut converted);
    *object = convert_object(rules, &write.resource, converted);
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
pub(crate) fn prepare_create(disabled: &DisabledFields, write: &Write, object: &mut Value) {
    if write.resource.is_custom() {
        api_strategy::custom::prepare_create(has_status(write), object);
    } else {
        change_as_rule_version(write, object, |object| {
            let kind = rule_kind(write);
            // First: the class of a pod depends on its fields.
            disabled.drop_from(kind, object, None);
            api_strategy::prepare_create(kind, object);
        });
    }
}

/// Prepares a changed object.
pub(crate) fn prepare_update(
    disabled: &DisabledFields,
    write: &Write,
    subresource: &str,
    new: &mut Value,
    old: &Value,
) {
    if write.resource.is_custom() {
        api_strategy::custom::prepare_update(has_status(write), subresource, new, old);
    } else {
        let old = as_rule_version(write, old);
        change_as_rule_version(write, new, |new| {
            let kind = rule_kind(write);
            disabled.drop_from(kind, new, Some(&old));
            api_strategy::prepare_update(kind, subresource, new, &old);
        });
    }
}

/// Applies the changes that storing an object causes.
pub(crate) fn as_stored(write: &Write, object: &mut Value) {
    if !write.resource.is_custom() {
        change_as_rule_version(write, object, |object| {
            api_strategy::as_stored(rule_kind(write), object);
        });
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
        ObjectSchema::BuiltIn(_) => {
            api_validation::validate_create(rule_kind(write), &as_rule_version(write, object))
        }
    }
}

/// Validates a changed object.
pub(crate) async fn validate_update(
    disabled: &DisabledFields,
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
            let (new, old) = (as_rule_version(write, new), as_rule_version(write, old));
            let kind = rule_kind(write);
            let is_resize = (kind.group, kind.kind, subresource) == ("", "Pod", "resize");
            if is_resize
                && !disabled.allows_pod_level_resize()
                && let Some(error) = api_validation::find_disabled_resize(&new, &old)
            {
                return vec![error];
            }
            api_validation::validate_update(kind, subresource, &new, &old)
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
    let object = as_rule_version(write, object);
    let old = old.map(|old| as_rule_version(write, old));
    let warnings =
        api_validation::object_warnings(rule_kind(write), subresource, &object, old.as_deref());
    for warning in warnings {
        if !write.warnings.contains(&warning) {
            write.warnings.push(warning);
        }
    }
}
