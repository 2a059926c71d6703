//! Strategy of custom resource definitions.

use api_meta::tree::{each_mut, flag, get, list, make, set, text};
use api_meta::{Meta, time};
use serde_json::{Map, Value, json};

/// Finalizer of a definition whose instances have to be deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A condition of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `type`.
    pub kind: &'static str,
    /// `status`: True, False, Unknown.
    pub status: &'static str,
    /// `reason`.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
}

impl Condition {
    /// Creates a condition.
    pub fn new(
        kind: &'static str,
        status: &'static str,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Condition {
            kind,
            status,
            reason,
            message: message.into(),
        }
    }
}

/// Sets a condition of a definition. Its time changes with its status only.
pub fn set_condition(definition: &mut Value, condition: &Condition) {
    let Some(status) = make(definition, "status") else {
        return;
    };
    let known = each_mut(status, "conditions").find(|known| text(known, "type") == condition.kind);
    if let Some(known) = known {
        let same_status = text(known, "status") == condition.status;
        if !same_status || text(known, "lastTransitionTime").is_empty() {
            set(known, "lastTransitionTime", time::now());
        }
        set(known, "status", condition.status);
        set(known, "reason", condition.reason);
        set(known, "message", condition.message.as_str());
        return;
    }
    let mut conditions = list(status, "conditions").to_vec();
    conditions.push(json!({"type": condition.kind, "status": condition.status,
        "lastTransitionTime": time::now(), "reason": condition.reason,
        "message": condition.message}));
    set(status, "conditions", conditions);
}

/// Removes a condition of a definition.
pub fn remove_condition(definition: &mut Value, kind: &str) {
    let conditions = list(get(definition, "status"), "conditions");
    if conditions.iter().any(|known| text(known, "type") == kind) {
        let mut kept = conditions.to_vec();
        kept.retain(|known| text(known, "type") != kind);
        if let Some(status) = make(definition, "status") {
            set(status, "conditions", kept);
        }
    }
}

/// Prepares the first delete of a definition: it is kept until its instances are deleted.
pub fn prepare_delete(definition: &mut Value) {
    if definition.is_being_deleted() {
        return;
    }
    if !definition.finalizers().contains(&CLEANUP_FINALIZER) {
        let mut finalizers = list(get(definition, "metadata"), "finalizers").to_vec();
        finalizers.push(CLEANUP_FINALIZER.into());
        definition
            .metadata_mut()
            .insert("finalizers".into(), finalizers.into());
    }
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let condition = Condition::new("Terminating", "True", "InstanceDeletionPending", message);
    set_condition(definition, &condition);
}

/// Returns whether two parts of a definition are equal. Upstream has pointers for the objects of a
/// definition, so an empty one, such as the subresource `status`, differs from an absent one. Its
/// lists and maps may be absent or empty.
pub(crate) fn is_same_definition(a: &Value, b: &Value) -> bool {
    const MAPS: [&str; 4] = [
        "properties",
        "patternProperties",
        "definitions",
        "dependencies",
    ];
    let is_set = |field: &str, value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty() || !MAPS.contains(&field),
        _ => true,
    };
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let count = |map: &Map<String, Value>| map.iter().filter(|(k, v)| is_set(k, v)).count();
            count(x) == count(y)
                && x.iter()
                    .filter(|(field, value)| is_set(field, value))
                    .all(|(field, value)| {
                        y.get(field)
                            .is_some_and(|other| is_same_definition(value, other))
                    })
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(a, b)| is_same_definition(a, b))
        }
        _ => a == b,
    }
}

/// Adds the storage version to the versions that stored objects may have. Others remain until a
/// migration removes them.
pub(crate) fn add_stored_version(object: &mut Value) {
    let versions = list(get(object, "spec"), "versions");
    let Some(storage) = versions.iter().find(|version| flag(version, "storage")) else {
        return;
    };
    let name = get(storage, "name").clone();
    if let Some(status) = make(object, "status") {
        let mut stored = list(status, "storedVersions").to_vec();
        if !stored.contains(&name) {
            stored.push(name);
            set(status, "storedVersions", stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_storage_version_is_added_once() {
        let mut object = json!({
            "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
            "status": {"storedVersions": ["v1"]}});
        add_stored_version(&mut object);
        add_stored_version(&mut object);
        assert_eq!(object["status"]["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn empty_object_differs_from_an_absent_one_but_not_an_empty_list() {
        for (a, b, expect) in [
            (
                json!({"subresources": {"status": {}}}),
                json!({"subresources": {}}),
                false,
            ),
            (json!({"subresources": {}}), json!({}), false),
            (json!({"items": {}}), json!({"items": null}), false),
            (
                json!({"properties": {"a": {}}}),
                json!({"properties": {}}),
                false,
            ),
            (json!({"properties": {}, "required": []}), json!({}), true),
            (json!([{"a": 1}]), json!([{"a": 1, "b": null}]), true),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), false),
        ] {
            assert_eq!(is_same_definition(&a, &b), expect, "{a} {b}");
            assert_eq!(is_same_definition(&b, &a), expect, "{b} {a}");
        }
    }

    #[test]
    fn first_delete_adds_finalizer_and_condition() {
        let mut object = json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}});
        prepare_delete(&mut object);
        assert_eq!(object.finalizers(), ["example.com/x", CLEANUP_FINALIZER]);
        let condition = &object["status"]["conditions"][0];
        assert_eq!(condition["reason"], "InstanceDeletionPending");
        let mut deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let before = deleted.clone();
        prepare_delete(&mut deleted);
        assert_eq!(
            deleted, before,
            "a repeated delete must not revive the finalizer"
        );
    }

    #[test]
    fn condition_keeps_its_time_while_its_status_is_the_same() {
        let mut object = json!({"status": {"conditions": [{"type": "Established", "status": "True",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
        set_condition(
            &mut object,
            &Condition::new("Established", "True", "A", "b"),
        );
        let condition = &object["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(
            (&condition["reason"], &condition["message"]),
            (&json!("A"), &json!("b"))
        );
        set_condition(
            &mut object,
            &Condition::new("Established", "False", "A", "b"),
        );
        let condition = &object["status"]["conditions"][0];
        assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
        remove_condition(&mut object, "Established");
        assert_eq!(object["status"]["conditions"], json!([]));
    }
}
