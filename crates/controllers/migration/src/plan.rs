//! Decisions: the next step of the migrations of one resource, and the status after it.

use std::cmp::Ordering;
use std::sync::Arc;

use api_meta::resource_version::compare_resource_versions;
use api_meta::text::truncate_text;
use controllers_runtime::{Meta, conditions, time};
use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

pub(crate) const RUNNING: &str = "Running";
pub(crate) const SUCCEEDED: &str = "Succeeded";
pub(crate) const FAILED: &str = "Failed";
/// Maximum bytes of a condition's message, by the validation of the API server.
const MAX_MESSAGE: usize = 32 * 1024;

/// A step of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Mark the migration, and the definition of a custom resource, as running.
    Start,
    /// Record the resourceVersion up to which objects may be stored in another version.
    Checkpoint,
    /// Rewrite the objects up to this resourceVersion.
    Rewrite(String),
    /// Mark the definition and the migration as no longer running.
    Finish,
}

/// Returns the queue key of a migration's resource: `plural.group`, the name of a definition.
pub(crate) fn resource_key(migration: &StorageVersionMigration) -> String {
    let (group, plural) = resource_of(migration);
    format!("{plural}.{group}")
}

/// Returns group and plural of the migrated resource.
pub(crate) fn resource_of(migration: &StorageVersionMigration) -> (&str, &str) {
    match &migration.spec {
        Some(spec) => (&spec.resource.group, &spec.resource.resource),
        None => ("", ""),
    }
}

/// Returns the migration of a resource to continue, and its next step. Migrations run one at a
/// time, the oldest first.
pub(crate) fn next_step(
    all: &[Arc<StorageVersionMigration>],
) -> Option<(Arc<StorageVersionMigration>, Step)> {
    let found = |state: (bool, bool)| {
        let mut found: Vec<_> = all
            .iter()
            .filter(|migration| (has_condition(migration, RUNNING), has_ended(migration)) == state)
            .collect();
        found.sort_by_key(|migration| {
            let created = migration.meta().creation_timestamp.as_ref();
            (created.map(|time| time.0), migration.name())
        });
        found.first().copied().cloned()
    };
    // First of all: the definition must not show an earlier migration while the next one runs.
    if let Some(ended) = found((true, true)) {
        return Some((ended, Step::Finish));
    }
    if let Some(running) = found((true, false)) {
        let status = running.status.as_ref();
        let version = status.and_then(|status| status.resource_version.clone());
        let step = match version.filter(|version| !version.is_empty()) {
            Some(version) => Step::Rewrite(version),
            None => Step::Checkpoint,
        };
        return Some((running, step));
    }
    found((false, false)).map(|next| (next, Step::Start))
}

fn has_ended(migration: &StorageVersionMigration) -> bool {
    has_condition(migration, SUCCEEDED) || has_condition(migration, FAILED)
}

/// Returns whether a condition is true.
pub(crate) fn has_condition(migration: &StorageVersionMigration, kind: &str) -> bool {
    let status = migration.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut all = conditions.into_iter().flatten();
    all.any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Returns the migration with a condition; a message that is too long is cut off.
pub(crate) fn with_condition(
    migration: &StorageVersionMigration,
    kind: &str,
    is_true: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> StorageVersionMigration {
    let mut changed = migration.clone();
    let status = changed.status.get_or_insert_default();
    let condition = Condition {
        last_transition_time: time::api_time(now),
        // Messages of other servers have no limit. A rejected status would be retried forever.
        message: truncate_text(message, MAX_MESSAGE).to_owned(),
        observed_generation: migration.meta().generation,
        reason: reason.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        type_: kind.to_owned(),
    };
    conditions::set_condition(status.conditions.get_or_insert_default(), condition);
    changed
}

/// Returns whether an object may be stored in another version than the storage version: it was last
/// written at or before the checkpoint. `None` if a resourceVersion is no number.
pub(crate) fn needs_rewrite(version: &str, checkpoint: &str) -> Option<bool> {
    compare_resource_versions(version, checkpoint).map(Ordering::is_le)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn migration(
        name: &str,
        second: u32,
        conditions: &[&str],
        version: &str,
    ) -> Arc<StorageVersionMigration> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| {
                json!({"type": kind.trim_start_matches('!'), "reason": "R", "message": "",
                    "status": if kind.starts_with('!') { "False" } else { "True" },
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let migration = serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"resource": {"group": "e.io", "resource": "widgets"}},
            "status": {"conditions": conditions, "resourceVersion": version}}));
        Arc::new(migration.unwrap())
    }

    #[test]
    fn migrations_of_a_resource_run_one_after_the_other() {
        let step = |all: &[Arc<StorageVersionMigration>]| {
            next_step(all).map(|(migration, step)| (migration.name().to_owned(), step))
        };
        let of = |name: &str, step| Some((name.to_owned(), step));
        let new = |name, second| migration(name, second, &[], "");
        let running = migration("b", 2, &["Running"], "");
        for (all, expect) in [
            (vec![], None),
            (vec![new("b", 1), new("a", 2)], of("b", Step::Start)),
            (vec![new("b", 1), new("a", 1)], of("a", Step::Start)),
            (
                vec![new("a", 1), running.clone()],
                of("b", Step::Checkpoint),
            ),
            (
                vec![migration("b", 2, &["Running"], "7"), new("a", 1)],
                of("b", Step::Rewrite("7".to_owned())),
            ),
            (
                vec![
                    new("a", 1),
                    running,
                    migration("c", 3, &["Running", "Succeeded"], "7"),
                ],
                of("c", Step::Finish),
            ),
            (
                vec![migration("a", 1, &["Running", "Failed"], "")],
                of("a", Step::Finish),
            ),
            (
                vec![
                    migration("a", 1, &["!Running", "Succeeded"], "7"),
                    new("b", 2),
                ],
                of("b", Step::Start),
            ),
            (vec![migration("a", 1, &["Failed"], "")], None),
            (
                vec![migration("a", 1, &["!Failed"], "")],
                of("a", Step::Start),
            ),
        ] {
            assert_eq!(step(&all), expect, "{all:?}");
        }
    }

    #[test]
    fn resource_has_the_name_of_its_definition() {
        assert_eq!(resource_key(&migration("a", 1, &[], "")), "widgets.e.io");
        assert_eq!(resource_of(&StorageVersionMigration::default()), ("", ""));
    }

    #[test]
    fn condition_is_added_once_and_keeps_its_time() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let add = |old: &StorageVersionMigration, is_true| {
            let changed = with_condition(old, RUNNING, is_true, ("R2", "m"), now);
            let conditions = changed.status.unwrap().conditions.unwrap();
            let [condition] = <[Condition; 1]>::try_from(conditions).unwrap();
            let time = condition.last_transition_time.0.to_string();
            (condition.status, condition.reason, time)
        };
        let expect = |status: &str, day: u32| {
            (
                status.to_owned(),
                "R2".to_owned(),
                format!("2026-01-0{day}T00:00:00Z"),
            )
        };
        assert_eq!(add(&migration("a", 1, &[], ""), true), expect("True", 2));
        assert_eq!(
            add(&migration("a", 1, &["Running"], ""), true),
            expect("True", 1)
        );
        assert_eq!(
            add(&migration("a", 1, &["Running"], ""), false),
            expect("False", 2)
        );
        assert_eq!(
            add(&StorageVersionMigration::default(), true),
            expect("True", 2)
        );
    }

    #[test]
    fn message_is_cut_off_at_the_limit_of_the_api_server() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (message, length) in [
            ("x".repeat(32_768), 32_768),
            ("x".repeat(32_769), 32_768),
            ("x".to_owned() + &"\u{e4}".repeat(20_000), 32_767),
        ] {
            let why = ("R", message.as_str());
            let changed = with_condition(&Default::default(), FAILED, true, why, now);
            let conditions = changed.status.unwrap().conditions.unwrap();
            assert_eq!(conditions[0].message.len(), length);
        }
    }

    #[test]
    fn objects_up_to_the_checkpoint_are_rewritten() {
        for (version, checkpoint, expect) in [
            ("5", "5", Some(true)),
            ("4", "5", Some(true)),
            ("6", "5", Some(false)),
            ("", "5", None),
            ("5", "", None),
        ] {
            assert_eq!(
                needs_rewrite(version, checkpoint),
                expect,
                "{version} {checkpoint}"
            );
        }
    }
}
