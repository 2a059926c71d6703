//! The definition of a migrated custom resource: its condition and its stored versions.

use serde_json::{Value, json};

/// Owner of the fields, as upstream.
pub(crate) const MANAGER: &str = "migration-runner-controller";
const MIGRATING: &str = "StorageMigrating";

/// Returns what to apply to the status of a definition when a migration starts.
pub(crate) fn mark_running(definition: &Value, migration: &str, now: &str) -> Value {
    let message = format!("Migration {migration} is running");
    let condition = ("True", "MigrationRunning", message.as_str());
    // Applied as they are: without them, an apply would remove those that the last one has set.
    let stored = definition.pointer("/status/storedVersions").cloned();
    build_status(definition, condition, stored, now)
}

/// Returns what to apply to the status of a definition when a migration has ended.
pub(crate) fn mark_ended(definition: &Value, succeeded: bool, now: &str) -> Value {
    let generation = |at: &Value| at.as_i64().unwrap_or_default();
    let conditions = definition
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let started = conditions.find(|condition| condition["type"] == MIGRATING);
    // A change of the definition since the start may have changed the storage version.
    let is_unchanged = started.is_some_and(|condition| {
        generation(&condition["observedGeneration"])
            == generation(&definition["metadata"]["generation"])
    });
    let (reason, message) = match (succeeded, is_unchanged) {
        (true, true) => (
            "MigrationSucceeded",
            "The migration has succeeded and the stored versions have been updated",
        ),
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let stored = match storage_version(definition) {
        // After a failure, objects may still be stored in the other versions.
        Some(version) if succeeded && is_unchanged => Some(json!([version])),
        _ => definition.pointer("/status/storedVersions").cloned(),
    };
    build_status(definition, ("False", reason, message), stored, now)
}

/// Returns what to apply to the status of a definition without unfinished migrations: `None` unless
/// it shows a migration of this controller that runs.
pub(crate) fn mark_aborted(definition: &Value, now: &str) -> Option<Value> {
    let has_text = |value: &Value, key: &str, text: &str| value[key] == text;
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    let is_running = conditions.iter().any(|condition| {
        has_text(condition, "type", MIGRATING) && has_text(condition, "status", "True")
    });
    // Other controllers may migrate in ways of their own.
    let owners = definition.pointer("/metadata/managedFields")?.as_array()?;
    let field = format!(r#"k:{{"type":"{MIGRATING}"}}"#);
    let is_own = owners.iter().any(|owner| {
        has_text(owner, "manager", MANAGER)
            && !owner["fieldsV1"]["f:status"]["f:conditions"][&field].is_null()
    });
    if !is_running || !is_own {
        return None;
    }
    let condition = (
        "False",
        "MigrationAborted",
        "The migration was deleted before it ended",
    );
    let stored = definition.pointer("/status/storedVersions").cloned();
    Some(build_status(definition, condition, stored, now))
}

fn storage_version(definition: &Value) -> Option<&Value> {
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let mut versions = versions.iter();
    let version = versions.find(|version| version["storage"] == true)?;
    version.get("name")
}

fn build_status(
    definition: &Value,
    (status, reason, message): (&str, &str, &str),
    stored: Option<Value>,
    now: &str,
) -> Value {
    let metadata = &definition["metadata"];
    let mut applied = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // With the version that was read: another change may change the generation.
        "metadata": {"name": metadata["name"], "resourceVersion": metadata["resourceVersion"]},
        "status": {"conditions": [{
            "type": MIGRATING, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": now, "observedGeneration": metadata["generation"]}]},
    });
    if let Some(stored) = stored {
        applied["status"]["storedVersions"] = stored;
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn definition(generation: i64, observed: Option<i64>) -> Value {
        let conditions: Vec<Value> = observed
            .map(|observed| json!({"type": MIGRATING, "status": "True", "observedGeneration": observed}))
            .into_iter()
            .collect();
        json!({"metadata": {"name": "widgets.e.io", "resourceVersion": "9", "generation": generation},
            "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
            "status": {"storedVersions": ["v1", "v2"], "conditions": conditions}})
    }

    #[test]
    fn start_keeps_the_stored_versions() {
        let applied = mark_running(&definition(3, None), "m", NOW);
        assert_eq!(
            applied["metadata"],
            json!({"name": "widgets.e.io", "resourceVersion": "9"})
        );
        let condition = json!({"type": MIGRATING, "status": "True", "reason": "MigrationRunning",
            "message": "Migration m is running", "lastTransitionTime": NOW, "observedGeneration": 3});
        let status = json!({"conditions": [condition], "storedVersions": ["v1", "v2"]});
        assert_eq!(applied["status"], status);
    }

    #[test]
    fn stored_versions_are_reduced_after_a_success_without_changes() {
        for (observed, succeeded, reason, stored) in [
            (Some(3), true, "MigrationSucceeded", json!(["v2"])),
            (Some(2), true, "MigrationSucceeded", json!(["v1", "v2"])),
            (None, true, "MigrationSucceeded", json!(["v1", "v2"])),
            (Some(3), false, "MigrationFailed", json!(["v1", "v2"])),
        ] {
            let applied = mark_ended(&definition(3, observed), succeeded, NOW);
            let condition = &applied["status"]["conditions"][0];
            assert_eq!(
                (&condition["reason"], &condition["status"]),
                (&json!(reason), &json!("False"))
            );
            assert_eq!(
                applied["status"]["storedVersions"], stored,
                "{observed:?} {reason}"
            );
        }
    }

    #[test]
    fn only_an_own_running_migration_is_aborted() {
        let own = json!({"manager": MANAGER, "subresource": "status", "fieldsV1": {"f:status":
            {"f:conditions": {r#"k:{"type":"StorageMigrating"}"#: {"f:status": {}}}}}});
        let mut other = own.clone();
        other["manager"] = json!("other");
        let mut elsewhere = own.clone();
        elsewhere["fieldsV1"] = json!({"f:status": {"f:storedVersions": {}}});
        for (observed, owners, expect) in [
            (Some(3), vec![other.clone(), own.clone()], true),
            (Some(3), vec![other], false),
            (Some(3), vec![elsewhere], false),
            (Some(3), vec![], false),
            (None, vec![own.clone()], false),
        ] {
            let mut definition = definition(3, observed);
            definition["metadata"]["managedFields"] = json!(owners);
            let applied = mark_aborted(&definition, NOW);
            assert_eq!(applied.is_some(), expect, "{definition}");
            let Some(applied) = applied else { continue };
            let condition = &applied["status"]["conditions"][0];
            assert_eq!(condition["status"], "False");
            assert_eq!(condition["reason"], "MigrationAborted");
            assert_eq!(applied["status"]["storedVersions"], json!(["v1", "v2"]));
            let mut ended = definition;
            ended["status"]["conditions"][0]["status"] = json!("False");
            assert_eq!(mark_aborted(&ended, NOW), None);
        }
    }
}
