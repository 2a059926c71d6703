//! `autoscaling/v1 Scale` as a view of objects with replicas.

use crate::create::name_mismatch;
use crate::write::Write;
use api_kinds::{ObjectSchema, Resource};
use api_meta::{ApiError, Cause, Meta, Selector, meta};
use api_structural::{ScalePaths, find_nested};
use apiserver_fields::ReplicasPaths;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the Scale of an object. A custom resource has its replicas where its version says.
pub fn scale_of(resource: &Resource, object: &Value) -> Value {
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
    let (wanted, present, selector) = match custom_paths(resource) {
        Some(paths) => {
            let find = |path| find_nested(object, path).ok().flatten();
            let number = |path| find(path).and_then(Value::as_i64).unwrap_or(0);
            let selector = paths.label_selector.as_deref().and_then(find);
            (
                number(&paths.spec_replicas),
                number(&paths.status_replicas),
                selector
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned(),
            )
        }
        None => {
            let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
            (
                number("/spec/replicas"),
                number("/status/replicas"),
                selector_text(object),
            )
        }
    };
    let mut spec = json!({});
    // The Scale omits zero values, as Go's `omitempty` does.
    if wanted != 0 {
        spec = json!({"replicas": wanted});
    }
    let mut status = json!({"replicas": present});
    if let (false, Some(map)) = (selector.is_empty(), status.as_object_mut()) {
        map.insert("selector".into(), selector.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

fn custom_paths(resource: &Resource) -> Option<&ScalePaths> {
    match &resource.schema {
        ObjectSchema::Custom(schema) => schema.scale.as_ref(),
        ObjectSchema::BuiltIn(_) => None,
    }
}

/// Returns the path of the desired replicas in each version of a resource; `served` has the
/// versions.
pub(crate) fn replicas_paths<'a>(
    resource: &Resource,
    served: impl Iterator<Item = &'a Arc<Resource>>,
) -> ReplicasPaths {
    if !resource.is_custom() {
        return ReplicasPaths::Same("spec.replicas".to_owned());
    }
    let versions =
        served.filter(|row| row.group == resource.group && row.plural == resource.plural);
    let path = |row: &Arc<Resource>| {
        let paths = custom_paths(row)?;
        Some((row.api_version(), paths.spec_replicas.to_string()))
    };
    ReplicasPaths::ByVersion(versions.filter_map(path).collect())
}

/// Checks that an object has replicas: a Scale without them would scale a custom resource to zero.
///
/// # Errors
/// A custom resource has no replicas.
pub fn check_scalable(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let Some(paths) = custom_paths(resource) else {
        return Ok(());
    };
    match find_nested(object, &paths.spec_replicas) {
        Ok(Some(value)) if value.is_i64() => Ok(()),
        _ => {
            let path = &paths.spec_replicas;
            let text = format!("the spec replicas field {path:?} does not exist");
            Err(ApiError::internal(text))
        }
    }
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
pub(crate) fn apply_scale(
    write: &Write,
    object: &mut Value,
    scale: &Value,
) -> Result<(), ApiError> {
    check_scale(&write.name, scale)?;
    set_replicas(&write.resource, object, scale);
    Ok(())
}

pub(crate) fn set_replicas(resource: &Resource, object: &mut Value, scale: &Value) {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64);
    let replicas = replicas.unwrap_or(0).into();
    if let Some(paths) = custom_paths(resource) {
        return set_nested(object, &paths.spec_replicas, replicas);
    }
    meta::object_at(object, "spec").insert("replicas".into(), replicas);
}

/// Sets a field, and creates the objects above it.
fn set_nested(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    let mut names = path.trim_start_matches('.').split('.').peekable();
    while let Some(name) = names.next() {
        let Value::Object(map) = at else { return };
        if names.peek().is_none() {
            map.insert(name.to_owned(), value);
            return;
        }
        at = map.entry(name).or_insert_with(|| json!({}));
    }
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
    fn custom_resource_has_its_replicas_at_the_declared_paths() {
        let version = json!({"name": "v1", "subresources": {"scale": {"specReplicasPath": ".spec.size.n",
            "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.selector"}}});
        let schema = api_kinds::CustomSchema::parse(&json!({}), &version).unwrap_or_default();
        let Some(base) = api_kinds::find("", "v1", "configmaps") else {
            unreachable!("the table has config maps");
        };
        let mut resource = Resource::clone(base);
        resource.schema = ObjectSchema::Custom(std::sync::Arc::new(schema));
        let mut object = json!({"metadata": {"name": "a"}, "spec": {},
            "status": {"n": 2, "selector": "a=b"}});
        assert!(check_scalable(&resource, &object).is_err());
        set_replicas(&resource, &mut object, &json!({"spec": {"replicas": 5}}));
        assert_eq!(object["spec"], json!({"size": {"n": 5}}));
        assert!(check_scalable(&resource, &object).is_ok());
        let scale = scale_of(&resource, &object);
        assert_eq!(scale["spec"], json!({"replicas": 5}));
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=b"}));
    }

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
