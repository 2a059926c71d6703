//! Scale: `autoscaling/v1 Scale` as a view of objects with replicas.

use crate::registry::Registry;
use crate::update::{Mode, Update};
use crate::write::Write;
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

impl Registry {
    /// Handles PUT or PATCH of a Scale; `change` computes the new Scale from the current one.
    /// Returns the Scale as stored.
    pub async fn update_scale(
        &self,
        write: &mut Write,
        change: &(dyn Fn(&Value) -> Result<Value, ApiError> + Send + Sync),
        replaces: bool,
    ) -> Result<Value, ApiError> {
        let name = write.name.clone();
        let through = move |object: &Value| {
            let scale = change(&scale_of(object))?;
            check_scale(&name, &scale)?;
            let mut object = object.clone();
            let replicas = scale
                .pointer("/spec/replicas")
                .and_then(Value::as_i64)
                .unwrap_or(0);
            meta::object_at(&mut object, "spec").insert("replicas".into(), replicas.into());
            // The precondition of the Scale is one on the object.
            object.set_meta_str("resourceVersion", scale.resource_version());
            Ok(object)
        };
        self.update(
            write,
            &Update {
                change: &through,
                replaces,
                mode: Mode::Scale,
            },
        )
        .await
        .map(|object| scale_of(&object))
    }
}

fn check_scale(name: &str, scale: &Value) -> Result<(), ApiError> {
    if !scale.name().is_empty() && scale.name() != name {
        return Err(crate::create::name_mismatch(scale.name(), name));
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
