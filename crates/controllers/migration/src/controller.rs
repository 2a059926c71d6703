//! The controller: one key for each resource that has migrations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{ApiResource, Client, Error, ListParams, Request};
use controllers_runtime::discovery::{Served, discover_resources};
use controllers_runtime::{
    Action, Cache, Drive, Executor, Meta, Queue, Setup, Target, Verb, Write, time,
};
use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use serde_json::Value;

use crate::definition::{MANAGER, mark_aborted, mark_ended, mark_running};
use crate::plan::{
    FAILED, RUNNING, SUCCEEDED, Step, has_condition, next_step, resource_key, resource_of,
    with_condition,
};
use crate::rewrite::rewrite_objects;

/// Verbs without which a resource can't be migrated.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// Time after its creation in which the resource of a migration may be missing in discovery: a
/// definition may be as new.
const DISCOVERY_SECONDS: i64 = 60;
/// Delay until discovery is read again.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);

/// Migrates the resources one step at a time: the conditions of the migrations are its memory, so
/// that another process can continue.
struct Migrator {
    migrations: Cache<StorageVersionMigration>,
    client: Client,
}

/// Sets up the storage version migrator.
pub fn add_storage_version_migrator(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let wake = queue.clone();
    let migrations = setup
        .informers
        .for_kind::<StorageVersionMigration>()
        .on_event(move |event| wake.add(resource_key(event.object())))
        .cache();
    let client = setup.client.clone();
    setup.add_driver(
        "storage-version-migrator-controller",
        workers,
        queue,
        Migrator { migrations, client },
    );
}

#[async_trait]
impl Drive for Migrator {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let mut all = self.migrations.list();
        all.retain(|migration| resource_key(migration) == key);
        let client = executor.client().await?;
        let Some((migration, step)) = next_step(&all) else {
            return abort_in_definition(&client, key).await;
        };
        match step {
            Step::Start => {
                let name = migration.name().to_owned();
                let mark = |definition: &Value, now: &str| mark_running(definition, &name, now);
                let why = ("MigrationRunning", "The migration is running");
                self.write_both(
                    &client,
                    &migration,
                    mark,
                    set_condition(&migration, RUNNING, true, why),
                )
                .await
            }
            Step::Checkpoint => self.record_checkpoint(&client, &migration).await,
            Step::Rewrite(checkpoint) => self.rewrite(&client, &migration, &checkpoint).await,
            Step::Finish => {
                let succeeded = has_condition(&migration, SUCCEEDED);
                let mark = |definition: &Value, now: &str| mark_ended(definition, succeeded, now);
                let why = ("MigrationCompleted", "Migration completed");
                self.write_both(
                    &client,
                    &migration,
                    mark,
                    set_condition(&migration, RUNNING, false, why),
                )
                .await
            }
        }
    }
}

impl Migrator {
    /// Returns the writes of the definition's status, if the resource has a definition, and of the
    /// migration's.
    async fn write_both(
        &self,
        client: &Client,
        migration: &StorageVersionMigration,
        mark: impl Fn(&Value, &str) -> Value,
        changed: StorageVersionMigration,
    ) -> Result<Vec<Action>, Error> {
        let mut actions = Vec::new();
        if let Some(definition) = read_definition(client, &resource_key(migration)).await? {
            let now = time::truncate_to_seconds(Timestamp::now()).to_string();
            actions.push(apply_to_definition(&definition, mark(&definition, &now)));
        }
        actions.push(Action::update_status(&changed));
        Ok(actions)
    }

    async fn record_checkpoint(
        &self,
        client: &Client,
        migration: &Arc<StorageVersionMigration>,
    ) -> Result<Vec<Action>, Error> {
        let served = match self.find_resource(migration).await? {
            Ok(served) => served,
            Err(actions) => return Ok(actions),
        };
        if !VERBS.iter().all(|verb| served.has_verb(verb)) {
            let why = format!(
                "resource {:?} does not support discovery operations: {VERBS:?}",
                describe_resource(&served.resource)
            );
            return Ok(vec![fail_migration(migration, &why)]);
        }
        let newest = client.metadata(&served.resource, None);
        let page = newest.page(&ListParams::new().with_limit(1), None).await?;
        let mut changed = StorageVersionMigration::clone(migration);
        changed.status.get_or_insert_default().resource_version = page.metadata.resource_version;
        Ok(vec![Action::update_status(&changed)])
    }

    async fn rewrite(
        &self,
        client: &Client,
        migration: &Arc<StorageVersionMigration>,
        checkpoint: &str,
    ) -> Result<Vec<Action>, Error> {
        let served = match self.find_resource(migration).await? {
            Ok(served) => served,
            Err(actions) => return Ok(actions),
        };
        let failure = rewrite_objects(client, &served.resource, checkpoint).await?;
        Ok(vec![match failure {
            Some(why) => fail_migration(
                migration,
                &format!("migration encountered unhandled error: {why}"),
            ),
            None => {
                let why = ("StorageVersionMigrationSucceeded", "");
                Action::update_status(&set_condition(migration, SUCCEEDED, true, why))
            }
        }])
    }

    /// Returns the resource in its preferred version, or what to do without it.
    async fn find_resource(
        &self,
        migration: &StorageVersionMigration,
    ) -> Result<Result<Served, Vec<Action>>, Error> {
        let (group, plural) = resource_of(migration);
        let found = discover_resources(&self.client).await?;
        let is_failed = found
            .failed_versions
            .iter()
            .any(|(other, _)| other == group);
        let mut all = found.resources.into_iter();
        let is_same =
            |served: &Served| served.resource.group == group && served.resource.plural == plural;
        if let Some(served) = all.find(is_same) {
            return Ok(Ok(served));
        }
        let created = migration.meta().creation_timestamp.as_ref();
        let age = created.map(|time| Timestamp::now().as_second() - time.0.as_second());
        if is_failed || age.is_some_and(|age| age < DISCOVERY_SECONDS) {
            return Ok(Err(vec![Action::Requeue(DISCOVERY_RETRY)]));
        }
        let why = "resource does not exist in discovery";
        Ok(Err(vec![fail_migration(migration, why)]))
    }
}

/// Returns the write of the definition's status if it still shows a migration that was deleted
/// while it ran.
async fn abort_in_definition(client: &Client, key: &str) -> Result<Vec<Action>, Error> {
    let definition = read_definition(client, key).await?;
    let now = time::truncate_to_seconds(Timestamp::now()).to_string();
    let aborted = definition.and_then(|definition| {
        let body = mark_aborted(&definition, &now)?;
        Some(apply_to_definition(&definition, body))
    });
    Ok(aborted.into_iter().collect())
}

/// Returns the definition of a resource key, if the resource has one.
async fn read_definition(client: &Client, key: &str) -> Result<Option<Value>, Error> {
    // The core group has no definitions, and its keys end with a dot.
    if key.ends_with('.') {
        return Ok(None);
    }
    let request = Request::get(target_of_definition(key).path());
    match client.request::<Value>(request).await {
        Ok(definition) => Ok(Some(definition)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn target_of_definition(name: &str) -> Target {
    Target {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        namespace: None,
        name: name.to_owned(),
        uid: None,
    }
}

fn apply_to_definition(definition: &Value, body: Value) -> Action {
    let name = definition["metadata"]["name"].as_str();
    let target = target_of_definition(name.unwrap_or_default());
    Action::from(Write::new(Verb::ApplyStatus(MANAGER), target, body)).ignore_absent()
}

fn describe_resource(resource: &ApiResource) -> String {
    format!("{}, Resource={}", resource.api_version(), resource.plural)
}

fn set_condition(
    migration: &StorageVersionMigration,
    kind: &str,
    is_true: bool,
    why: (&str, &str),
) -> StorageVersionMigration {
    with_condition(migration, kind, is_true, why, Timestamp::now())
}

fn fail_migration(migration: &StorageVersionMigration, why: &str) -> Action {
    tracing::warn!(
        migration = migration.name(),
        why,
        "a storage version migration failed; create another one after the cause is removed"
    );
    let why = ("StorageVersionMigrationFailed", why);
    Action::update_status(&set_condition(migration, FAILED, true, why))
}
