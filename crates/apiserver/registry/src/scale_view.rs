//! `autoscaling/v1 Scale` as a view of objects with replicas.

use crate::create::name_mismatch;
use api_meta::{ApiError, Cause, Meta, Selector, meta};
use serde_json::{Value, json};

/// Returns the Scale of an object.
pub fn scale_of(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let (Some(value), Some(map)) = (
            object.metadata().and_then(|m| m.get(field)),
            metadata.as_object_mut(),
        ) {
            map.insert(field.into(), value.clone());
        }
    }
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let mut spec = json!({});
    // The Scale omits zero values, as Go's `omitempty` does.
    if number("/spec/replicas") != 0 {
        spec = json!({"replicas": number("/spec/replicas")});
    }
    let mut status = json!({"replicas": number("/status/replicas")});
    let selector = selector_text(object);
    if let (false, Some(map)) = (selector.is_empty(), status.as_object_mut()) {
        map.insert("selector".into(), selector.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Returns `spec.selector` in the form of a query parameter.
pub fn selector_text(object: &Value) -> String {
    let Some(selector) = object.pointer("/spec/selector") else {
        return String::new();
    };
    let is_label_selector = selector.get("matchLabels").is_some_and(Value::is_object)
        || selector.get("matchExpressions").is_some();
    let selector = if is_label_selector {
        selector.clone()
    } else {
        json!({"matchLabels": selector})
    };
    let mut parsed = Selector::from_label_selector(&selector)
        .ok()
        .flatten()
        .unwrap_or_default();
    parsed.requirements.sort_by(|a, b| a.key.cmp(&b.key));
    parsed.to_string()
}

/// Applies a Scale that admission has changed.
///
/// # Errors
/// The Scale is invalid.
pub(crate) fn apply_scale(name: &str, object: &mut Value, scale: &Value) -> Result<(), ApiError> {
    check_scale(name, scale)?;
    set_replicas(object, scale);
    Ok(())
}

pub(crate) fn set_replicas(object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64);
    let replicas = replicas.unwrap_or(0).into();
    meta::object_at(object, "spec").insert("replicas".into(), replicas);
}

pub(crate) fn check_scale(name: &str, scale: &Value) -> Result<(), ApiError> {
    if !scale.name().is_empty() && scale.name() != name {
        return Err(name_mismatch(scale.name(), name));
    }
    let replicas = scale
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    if replicas >= 0 {
        return Ok(());
    }
    let message = format!("Invalid value: {replicas}: must be greater than or equal to 0");
    let cause = Cause {
        reason: "FieldValueInvalid".into(),
        message,
        field: "spec.replicas".into(),
    };
    Err(ApiError::invalid("autoscaling", "Scale", name, vec![cause]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_of_both_forms() {
        assert_eq!(
            selector_text(&json!({"spec": {"selector": {"b": "1", "a": "2"}}})),
            "a=2,b=1"
        );
        assert_eq!(
            selector_text(&json!({"spec": {"selector": {"matchLabels": {"a": "2"}}}})),
            "a=2"
        );
        assert_eq!(selector_text(&json!({"spec": {}})), "");
    }
}
