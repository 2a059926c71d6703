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
        .of::<Namespace>()
        .on(wake::itself(&queue))
        .cache();
    let (waiting, known) = (queue.clone(), namespaces.clone());
    deletions.subscribe(move |_, _, namespace| {
        if known.get(namespace).is_some_and(|n| n.deleting()) {
            waiting.add_after(namespace.to_owned(), BATCH);
        }
    });
    let client = setup.client.clone();
    setup.drive(
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
        if !cached.deleting() {
            return Ok(Vec::new());
        }
        let client = executor.client().await?;
        let Some(mut namespace) = client.api::<Namespace>().get_opt(key).await? else {
            return Ok(Vec::new());
        };
        if !namespace.deleting() || !list_finalizers(&namespace).any(|f| f == FINALIZER) {
            return Ok(Vec::new());
        }
        if namespace.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Terminating") {
            namespace.status.get_or_insert_default().phase = Some("Terminating".to_owned());
            namespace = client.api::<Namespace>().update_status(&namespace).await?;
        }
        let found = discovery::discover(&self.client)
            .await
            .unwrap_or_else(|error| Discovered::failed(&error));
        let content = content::delete_content(&client, key, &found).await;
        let now = time::whole(Timestamp::now());
        if conditions::update_conditions(&mut namespace, &content, &found.failures, now) {
            namespace = client.api::<Namespace>().update_status(&namespace).await?;
        }
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
    request.method = http::Method::PUT;
    match client.bytes(request).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
