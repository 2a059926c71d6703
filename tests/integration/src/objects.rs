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
