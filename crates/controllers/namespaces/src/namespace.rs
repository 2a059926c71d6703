//! Deletion of namespaces: the content first, pods before everything they use, then the namespace.
//!
//! The kinds come from the server's discovery at the time of the deletion, so that kinds unknown at
//! build time are deleted too. Remaining objects are listed in the namespace's conditions. The
//! finalizer is removed only when every kind was read and is empty.

mod conditions;
mod content;

use std::time::Duration;

use async_trait::async_trait;
use client::{Client, Error, Request};
use controllers_runtime::discovery::{self, Discovered};
use controllers_runtime::{
    Action, Cache, Deletions, Drive, Executor, Meta, Queue, Setup, time, wake,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;

use content::Content;

const FINALIZER: &str = "kubernetes";
/// Requeue delay while foreign finalizers hold the content.
const FINALIZING: Duration = Duration::from_secs(15);
/// Requeue delay while objects are being deleted.
const DELETING: Duration = Duration::from_secs(1);
/// Delay by which concurrent deletions are batched.
const BATCH: Duration = Duration::from_millis(200);

struct Namespaces {
    namespaces: Cache<Namespace>,
    client: Client,
}

/// Sets up the namespace controller; `deletions` enqueue a namespace in addition to its own
/// changes.
pub fn add_namespace_controller(setup: &mut Setup, workers: usize, deletions: &Deletions) {
    let queue = Queue::new();
    let namespaces = setup
        .informers
        .for_kind::<Namespace>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let (waiting, known) = (queue.clone(), namespaces.clone());
    deletions.subscribe(move |_, _, namespace| {
        if known.get(namespace).is_some_and(|n| n.is_deleting()) {
            waiting.add_after(namespace.to_owned(), BATCH);
        }
    });
    let client = setup.client.clone();
    setup.add_driver(
        "namespace-controller",
        workers,
        queue,
        Namespaces { namespaces, client },
    );
}

#[async_trait]
impl Drive for Namespaces {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(cached) = self.namespaces.get(key) else {
            return Ok(Vec::new());
        };
        if !cached.is_deleting() {
            return Ok(Vec::new());
        }
        let client = executor.client().await?;
        // The cache may lag behind the finalizers of other controllers, and the finalize request
        // replaces all of them.
        let Some(mut namespace) = client.api::<Namespace>().get_opt(key).await? else {
            return Ok(Vec::new());
        };
        if !namespace.is_deleting() || !list_finalizers(&namespace).any(|f| f == FINALIZER) {
            return Ok(Vec::new());
        }
        if namespace.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Terminating") {
            namespace.status.get_or_insert_default().phase = Some("Terminating".to_owned());
            namespace = client.api::<Namespace>().update_status(&namespace).await?;
        }
        // A failed discovery is reported as a condition. The namespace keeps its finalizer, because
        // there may be kinds that were not read.
        let found = discovery::discover_resources(&self.client)
            .await
            .unwrap_or_else(|error| Discovered::from_error(&error));
        let content = content::delete_content(&client, key, &found).await;
        let now = time::truncate_to_seconds(Timestamp::now());
        if conditions::update_conditions(&mut namespace, &content, &found.failures, now) {
            namespace = client.api::<Namespace>().update_status(&namespace).await?;
        }
        // Upstream removes the finalizer only when every group version could be discovered.
        if content.is_deleted() && found.failures.is_empty() {
            remove_finalizer(&client, namespace).await?;
            return Ok(Vec::new());
        }
        Ok(vec![Action::Requeue(requeue_delay(&content))])
    }
}

fn list_finalizers(namespace: &Namespace) -> impl Iterator<Item = &String> {
    namespace
        .spec
        .iter()
        .flat_map(|s| s.finalizers.iter().flatten())
}

fn requeue_delay(content: &Content) -> Duration {
    // Half of the grace period: most pods end earlier than they may.
    if let Some(grace) = content.grace {
        return Duration::from_secs(grace.unsigned_abs() / 2 + 1);
    }
    if content.finalizers.is_empty() {
        DELETING
    } else {
        FINALIZING
    }
}

/// Removes this controller's finalizer; foreign ones stay.
async fn remove_finalizer(client: &Client, mut namespace: Namespace) -> Result<(), Error> {
    let path = format!("/api/v1/namespaces/{}/finalize", namespace.name());
    if let Some(spec) = &mut namespace.spec {
        spec.finalizers
            .get_or_insert_default()
            .retain(|f| f != FINALIZER);
    }
    let mut request = Request::post(path, &namespace)?;
    // spec.finalizers can be changed only through this subresource; an ordinary update ignores the
    // change.
    request.method = http::Method::PUT;
    match client.bytes(request).await {
        // The namespace disappears with its last finalizer, so a repeated request may not find it.
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    #[test]
    fn requeue_waits_for_pods_then_for_finalizers() {
        let content = |grace: Option<i64>, finalizer: bool| Content {
            grace,
            finalizers: finalizer.then(|| ("f".to_owned(), 1)).into_iter().collect(),
            ..Content::default()
        };
        for (content, seconds) in [
            (content(Some(30), true), 16),
            (content(Some(0), false), 1),
            (content(None, true), 15),
            (content(None, false), 1),
        ] {
            assert_eq!(requeue_delay(&content).as_secs(), seconds, "{content:?}");
        }
    }
}
