//! `metav1.LabelSelector`.

use crate::field::{Errors, Path};
use crate::metadata;
use api_meta::tree::{list, text};
use api_meta::{Selector, names};
use serde_json::Value;

/// Validates a label selector.
pub fn validate_label_selector(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_selector_leniently(selector, false, path, errors);
}

/// Validates a label selector. With `invalid_values`, values of expressions may be no label values,
/// as in objects of old releases.
pub fn validate_selector_leniently(
    selector: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !selector.is_object() {
        return;
    }
    metadata::validate_labels(selector, "matchLabels", path, errors);
    let expressions = path.child("matchExpressions");
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        validate_label_requirement(expression, invalid_values, &expressions.index(i), errors);
    }
}

/// Returns whether a value of the selector's expressions is no label value.
pub fn has_invalid_values(selector: &Value) -> bool {
    list(selector, "matchExpressions")
        .iter()
        .flat_map(|expression| list(expression, "values"))
        .any(|value| !names::label_value(value.as_str().unwrap_or_default()).is_empty())
}

fn validate_label_requirement(
    expression: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let values = list(expression, "values");
    let at = path.child("values");
    match text(expression, "operator") {
        // An empty list would match nothing (`In`) or everything (`NotIn`), which is always a
        // mistake.
        "In" | "NotIn" if values.is_empty() => {
            errors.required(&at, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            errors.forbidden(
                &at,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            );
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            other,
            "not a valid selector operator",
        ),
    }
    let key = text(expression, "key");
    errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    if invalid_values {
        return;
    }
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), value, names::label_value(value));
    }
}

/// Returns whether a selector has no requirements.
pub fn is_empty_selector(selector: &Value) -> bool {
    let labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|m| m.is_empty());
    labels && list(selector, "matchExpressions").is_empty()
}

/// Compiles a selector. `None` matches nothing; an error means that it is invalid.
pub fn compile_selector(selector: &Value) -> Result<Option<Selector>, ()> {
    let bad_set =
        |e: &Value| matches!(text(e, "operator"), "In" | "NotIn") && list(e, "values").is_empty();
    if list(selector, "matchExpressions").iter().any(bad_set) {
        return Err(());
    }
    Selector::from_label_selector(selector).map_err(|_| ())
}
