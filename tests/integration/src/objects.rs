//! Objects for tests.

use serde_json::{Value, json};

/// Returns a ConfigMap with one entry, `a: 1`.
pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// Returns a pod with one container `c`.
pub fn pod(name: &str) -> Value {
    pod_with(name, &json!({}))
}

/// Returns a pod with one container `c` and these fields of the spec.
pub fn pod_with(name: &str, fields: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "example.com/c:1"}]});
    if let (Some(spec), Some(fields)) = (spec.as_object_mut(), fields.as_object()) {
        spec.extend(fields.clone());
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

/// Returns a Deployment whose pods have the label `app: NAME`.
pub fn deployment(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}]}}}})
}

/// Returns a Node with these labels.
pub fn node(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// Returns an RBAC rule for resources of one API group.
pub fn grant_rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// Returns the condition of this type in the status of an object; null if there is none.
pub fn find_condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .and_then(|conditions| conditions.iter().find(|c| c["type"] == kind))
        .unwrap_or(&NONE)
}

/// Returns whether the object has the condition of this type with status True.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    find_condition(object, kind)["status"] == "True"
}

/// Returns the name of an object.
pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
