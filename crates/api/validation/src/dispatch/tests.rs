//! Tables of invalid changes to valid objects, with upstream's field paths and messages.

use super::*;
use api_defaulting::default_object;
use api_strategy::{prepare_create, prepare_update};
use serde_json::json;

fn kind(group: &'static str, kind: &'static str) -> Kind<'static> {
    let cluster = matches!(
        kind,
        "PersistentVolume"
            | "ClusterRole"
            | "Namespace"
            | "Node"
            | "PriorityClass"
            | "StorageClass"
    );
    Kind {
        group,
        version: "v1",
        kind,
        namespaced: !cluster,
    }
}

fn merge(base: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *base = change.clone();
        return;
    };
    for (key, value) in change {
        if value.is_null() {
            api_meta::tree::remove(base, key);
        } else {
            if base.get(key).is_none() {
                api_meta::tree::set(base, key, Value::Object(serde_json::Map::new()));
            }
            if let Some(inner) = base.get_mut(key) {
                merge(inner, value);
            }
        }
    }
}

fn good(kind: Kind<'_>) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let body = match kind.kind {
        "Pod" => json!({"spec": template["spec"]}),
        "Deployment" => {
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
        }
        "Job" => {
            let mut job = json!({"spec": {"template": template}});
            job["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
            job
        }
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "ConfigMap" => json!({"data": {"a": "b"}}),
        "Role" => json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        "RoleBinding" => {
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]})
        }
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        _ => json!({}),
    };
    let mut object = json!({"metadata": {"name": "x", "uid": "u-1", "creationTimestamp": "2024-01-01T00:00:00Z"}});
    if kind.namespaced {
        object["metadata"]["namespace"] = "n".into();
    }
    merge(&mut object, &body);
    object
}

fn made(kind: Kind<'_>, change: &Value) -> Value {
    let mut object = good(kind);
    merge(&mut object, change);
    default_object(kind, &mut object);
    prepare_create(kind, &mut object);
    object
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn create(group: &'static str, name: &'static str, change: Value, expect: &[&str]) {
    let kind = kind(group, name);
    assert_eq!(
        texts(&validate_create(kind, &made(kind, &change))),
        expect,
        "{name} {change}"
    );
}

fn update(group: &'static str, name: &'static str, change: Value, expect: &[&str]) {
    let kind = kind(group, name);
    let old = made(kind, &json!({}));
    let mut new = old.clone();
    merge(&mut new, &change);
    default_object(kind, &mut new);
    prepare_update(kind, "", &mut new, &old);
    let found = texts(&validate_update(kind, "", &new, &old));
    let found: Vec<&str> = found
        .iter()
        .map(|t| t.lines().next().unwrap_or_default())
        .collect();
    assert_eq!(found, expect, "{name} {change}");
}

#[test]
fn valid_objects_have_no_errors() {
    for (group, name) in [
        ("", "Pod"),
        ("apps", "Deployment"),
        ("batch", "Job"),
        ("", "Service"),
        ("", "ConfigMap"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("", "PersistentVolumeClaim"),
        ("", "ServiceAccount"),
    ] {
        create(group, name, json!({}), &[]);
        update(
            group,
            name,
            json!({"metadata": {"labels": {"new": "label"}}}),
            &[],
        );
    }
}

#[test]
fn invalid_creates_are_reported() {
    create(
        "",
        "Pod",
        json!({"spec": {"containers": []}}),
        &["spec.containers: Required value"],
    );
    create(
        "",
        "Pod",
        json!({"spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}]}}),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
    );
    create(
        "",
        "Pod",
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}}),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ],
    );
    create(
        "apps",
        "Deployment",
        json!({"spec": {"replicas": -1}}),
        &["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
    );
    create(
        "apps",
        "Deployment",
        json!({"spec": {"selector": {"matchLabels": {"a": "other"}}}}),
        &[
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ],
    );
    create(
        "",
        "Service",
        json!({"spec": {"sessionAffinity": "Cookie"}}),
        &[
            "spec.sessionAffinity: Unsupported value: \"Cookie\": supported values: \"ClientIP\", \"None\"",
        ],
    );
    create(
        "",
        "Service",
        json!({"spec": {"ports": []}}),
        &["spec.ports: Required value"],
    );
    create(
        "",
        "ConfigMap",
        json!({"metadata": {"name": null}}),
        &["metadata.name: Required value: name or generateName is required"],
    );
    create(
        "rbac.authorization.k8s.io",
        "Role",
        json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]}),
        &["rules[0].verbs: Required value: verbs must contain at least one value"],
    );
}

#[test]
fn invalid_updates_are_reported() {
    update(
        "",
        "Pod",
        json!({"spec": {"containers": [{"name": "c", "image": "other:1"}]}}),
        &[],
    );
    update(
        "",
        "Pod",
        json!({"spec": {"activeDeadlineSeconds": 5}}),
        &[],
    );
    update(
        "",
        "Pod",
        json!({"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "i:1"}]}}),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    update("apps", "Deployment", json!({"spec": {"replicas": 3}}), &[]);
    update(
        "batch",
        "Job",
        json!({"spec": {"completions": 5}}),
        &["spec.completions: Invalid value: 5: field is immutable"],
    );
    update(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"roleRef": {"name": "other"}}),
        &[
            "roleRef: Invalid value: {\"apiGroup\":\"rbac.authorization.k8s.io\",\"kind\":\"Role\",\"name\":\"other\"}: cannot change roleRef",
        ],
    );
    update(
        "",
        "ConfigMap",
        json!({"metadata": {"name": "y"}}),
        &["metadata.name: Invalid value: \"y\": field is immutable"],
    );
}

#[test]
fn generation_increments_with_the_spec_only() {
    let kind = kind("apps", "Deployment");
    let old = made(kind, &json!({}));
    let moved = |change: Value| {
        let mut new = old.clone();
        merge(&mut new, &change);
        prepare_update(kind, "", &mut new, &old);
        api_meta::tree::get(&new, "metadata")
            .get("generation")
            .and_then(Value::as_i64)
    };
    assert_eq!(moved(json!({"metadata": {"labels": {"a": "b"}}})), Some(1));
    assert_eq!(moved(json!({"status": {"replicas": 3}})), Some(1));
    assert_eq!(moved(json!({"spec": {"replicas": 3}})), Some(2));
}
