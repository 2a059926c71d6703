//! Deletes the instances of a definition that is being deleted, and then its finalizer.

use crate::definition::{CLEANUP_FINALIZER, GROUP, PLURAL, accepted_names, group, is_true};
use api_meta::tree::{list, set, text};
use api_meta::{ApiError, Meta, Reason};
use api_strategy::definition::{Condition, set_condition};
use apiserver_cache::{ResourceCache, Selection};
use apiserver_registry::{DeleteOptions, ListQuery, Mode, Registry, Update, Write};
use base_task::Tasks;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time after which the progress is reported, and the instances are deleted again.
const PATIENCE: Duration = Duration::from_secs(60);
// The interval of upstream's poll in `deleteInstances`, whose timeout is the one above.
const RETRY: Duration = Duration::from_secs(5);

/// The cleanups that run, one task for each definition.
pub(crate) struct Cleanup {
    registry: Arc<Registry>,
    tasks: Tasks,
    /// UIDs.
    running: Mutex<HashSet<String>>,
}

/// A reason that prevents the end of a cleanup.
struct Delay {
    reason: &'static str,
    message: String,
}

impl Cleanup {
    pub(crate) fn new(registry: Arc<Registry>, tasks: Tasks) -> Self {
        Cleanup {
            registry,
            tasks,
            running: Mutex::default(),
        }
    }

    /// Starts the cleanup of a definition, unless it runs.
    pub(crate) fn start(self: &Arc<Self>, name: &str, uid: &str) {
        // The UID, because a definition that was created again has a cleanup of its own.
        if !self.running.lock().insert(uid.to_owned()) {
            return;
        }
        let (cleanup, name, uid) = (self.clone(), name.to_owned(), uid.to_owned());
        self.tasks.spawn("custom-resource-cleanup", async move {
            let shutdown = cleanup.tasks.shutdown().clone();
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = cleanup.run(&name, &uid) => {}
            }
            cleanup.running.lock().remove(&uid);
        });
    }

    async fn run(&self, name: &str, uid: &str) {
        loop {
            match self.clean_up(name, uid).await {
                Ok(()) => return,
                // The definition is deleted, or another server has completed the cleanup.
                Err(error) if error.reason == Reason::NotFound => return,
                Err(error) => {
                    tracing::warn!(name, %error, "failed to delete the instances of a definition");
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn clean_up(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let message = "CustomResource deletion is in progress";
        let begun = terminating("True", "InstanceDeletionInProgress", message);
        let definition = self.write_condition(name, uid, &begun, false).await?;
        let (group, plural) = (
            group(&definition),
            text(accepted_names(&definition), "plural"),
        );
        let ended = if api_kinds::is_built_in(group, plural) {
            // The objects under this prefix are those of the built-in resource, and must stay.
            let message = "instances overlap with built-in resources in storage";
            terminating("False", "OverlappingBuiltInResource", message)
        } else if !is_true(&definition, "Established") {
            terminating(
                "False",
                "NeverEstablished",
                "resource was never established",
            )
        } else {
            self.delete_until_empty(name, uid, group, plural).await?;
            terminating(
                "False",
                "InstanceDeletionCompleted",
                "removed all instances",
            )
        };
        self.write_condition(name, uid, &ended, true).await?;
        Ok(())
    }

    /// Deletes all instances until none is left, and reports delays in the definition's status.
    async fn delete_until_empty(
        &self,
        name: &str,
        uid: &str,
        group: &str,
        plural: &str,
    ) -> Result<(), ApiError> {
        repeat_until_done(|| async move {
            let Err(delay) = self.delete_instances(group, plural).await else {
                return Ok(true);
            };
            let condition = terminating("True", delay.reason, &delay.message);
            self.write_condition(name, uid, &condition, false).await?;
            Ok(false)
        })
        .await
    }

    async fn delete_instances(&self, group: &str, plural: &str) -> Result<(), Delay> {
        let failed = |message: String| Delay {
            reason: "InstanceDeletionFailed",
            message,
        };
        let caches = self.registry.caches();
        // The creates that were admitted before this one are in the cache from here on.
        let current = caches.wait_for_current().await;
        current.map_err(|e| failed(format!("could not list instances: {e}")))?;
        let Some(cache) = caches.find_cache(group, plural) else {
            return Err(failed(format!(
                "could not list instances: unable to find a custom resource client for {plural}.{group}"
            )));
        };
        let write = Write::internal(&cache.kind().resource, "", "");
        let (query, options) = (ListQuery::default(), DeleteOptions::default());
        let deleted = self.registry.delete_collection(&write, &query, &options);
        deleted
            .await
            .map_err(|error| failed(format!("could not issue all deletes: {error}")))?;
        self.wait_until_empty(&cache).await
    }

    /// Waits until the finalizers of all instances are removed.
    async fn wait_until_empty(&self, cache: &ResourceCache) -> Result<(), Delay> {
        let caches = self.registry.caches();
        let check = |why: String| Delay {
            reason: "InstanceDeletionCheck",
            message: format!("could not confirm zero CustomResources remaining: {why}"),
        };
        let deadline = Instant::now() + PATIENCE;
        // Before the first look at the cache, so that no deletion after it is missed.
        let mut changes = cache
            .subscribe_from_now(Selection::default(), caches.revision())
            .changes;
        // Deletes that just succeeded may not be in the cache.
        let current = caches.wait_for_current().await;
        current.map_err(|error| check(error.to_string()))?;
        loop {
            if cache.is_empty() {
                return Ok(());
            }
            match tokio::time::timeout_at(deadline, changes.recv()).await {
                Ok(Some(_)) => {}
                // The watch ended because the definition changed.
                Ok(None) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let again = cache.subscribe_from_now(Selection::default(), caches.revision());
                    changes = again.changes;
                    if Instant::now() >= deadline {
                        return Err(check("context deadline exceeded".into()));
                    }
                }
                Err(_) => return Err(check("context deadline exceeded".into())),
            }
        }
    }

    /// Writes a condition of the definition with this UID, and removes the finalizer at the end.
    async fn write_condition(
        &self,
        name: &str,
        uid: &str,
        condition: &Condition,
        ends: bool,
    ) -> Result<Value, ApiError> {
        let resource = api_kinds::find(GROUP, "v1", PLURAL).ok_or_else(ApiError::no_such_path)?;
        let mut write = Write::internal(resource, "", name);
        write.subresource = "status".into();
        let change = |old: &Value| {
            // Deleted and created again, or another server was faster.
            if old.uid() != uid || !old.finalizers().contains(&CLEANUP_FINALIZER) {
                return Err(ApiError::not_found(GROUP, PLURAL, name));
            }
            let mut new = old.clone();
            set_condition(&mut new, condition);
            if ends {
                remove_finalizer(&mut new);
            }
            Ok(new)
        };
        let update = Update {
            change: &change,
            replaces: false,
            mode: Mode::Full,
        };
        self.registry.update(&mut write, &update).await
    }
}

/// Repeats an attempt until it returns true.
///
/// # Errors
/// The attempt's error, which ends the repetition.
async fn repeat_until_done<E, F: Future<Output = Result<bool, E>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<(), E> {
    loop {
        let begun = Instant::now();
        if attempt().await? {
            return Ok(());
        }
        // From the start of the attempt: one that fails at once can't repeat its writes without a
        // pause. One that has used its whole timeout is followed by the next one at once.
        tokio::time::sleep_until(begun + RETRY).await;
    }
}

fn remove_finalizer(definition: &mut Value) {
    let Some(metadata) = definition.get_mut("metadata") else {
        return;
    };
    let mut finalizers = list(metadata, "finalizers").to_vec();
    finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
    set(metadata, "finalizers", finalizers);
}

fn terminating(status: &'static str, reason: &'static str, message: &str) -> Condition {
    Condition::new("Terminating", status, reason, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_begin_at_least_the_retry_interval_apart() {
        for (case, takes, expect) in [
            ("fails at once", Duration::ZERO, RETRY),
            ("fails late", Duration::from_secs(3), RETRY),
            ("uses its timeout", PATIENCE, PATIENCE),
        ] {
            let mut begun = Vec::new();
            let done = repeat_until_done(|| {
                begun.push(Instant::now());
                let is_last = begun.len() == 3;
                async move {
                    tokio::time::sleep(takes).await;
                    Ok::<bool, ()>(is_last)
                }
            });
            assert_eq!(done.await, Ok(()), "{case}");
            let gaps: Vec<Duration> = begun.windows(2).map(|two| two[1] - two[0]).collect();
            assert_eq!(gaps, [expect; 2], "{case}");
        }
    }

    #[tokio::test]
    async fn error_ends_the_repetition() {
        assert_eq!(repeat_until_done(|| async { Err(7) }).await, Err(7));
    }
}
