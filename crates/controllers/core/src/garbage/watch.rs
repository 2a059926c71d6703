//! Metadata watches of every kind that can be deleted.

use std::sync::Arc;
use std::time::Duration;

use client::{ApiResource, Event, Informer, ListParams, PartialObject};
use controllers_runtime::Meta;
use controllers_runtime::discovery::{self, Discovered};

use super::graph::Node;
use super::{IGNORED, Shared};

/// Maximum time for which a kind that can't be listed delays the collection of all others.
const PATIENCE: Duration = Duration::from_secs(30);

/// Discovers kinds, watches them, and queues all doubtful objects once every kind is listed.
pub async fn run(shared: Arc<Shared>) {
    tokio::select! {
        () = shared.stop.clone().cancelled_owned() => {}
        () = begin(&shared) => {}
    }
}

async fn begin(shared: &Arc<Shared>) {
    let found = loop {
        match discovery::discover(&shared.client).await {
            Ok(found) if !found.resources.is_empty() => break found,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "garbage collection waits for discovery"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    follow(shared, &found).await;
}

/// Reads discovery again, for kinds that were added later.
pub async fn refresh(shared: &Arc<Shared>) -> Result<(), client::Error> {
    let found = discovery::discover(&shared.client).await?;
    follow(shared, &found).await;
    Ok(())
}

async fn follow(shared: &Arc<Shared>, found: &Discovered) {
    let mut waits = Vec::new();
    for served in &found.resources {
        let resource = &served.resource;
        let id = (resource.group.clone(), resource.kind.clone());
        shared.kinds.lock().insert(id.clone(), resource.clone());
        let ignored = IGNORED.contains(&(resource.group.as_str(), resource.plural.as_str()));
        let usable = ["delete", "list", "watch"].iter().all(|v| served.has(v));
        if usable && !ignored && shared.watched.lock().insert(id) {
            waits.push(watch(shared, resource));
        }
    }
    let listed = futures::future::join_all(waits.iter().map(client::Store::wait_until_synced));
    if tokio::time::timeout(PATIENCE, listed).await.is_err() {
        tracing::warn!("some kinds can't be listed; their objects are not collected until then");
    }
    shared
        .synced
        .store(true, std::sync::atomic::Ordering::Release);
    let doubtful = shared.graph.lock().doubtful();
    shared.enqueue(doubtful);
}

fn watch(shared: &Arc<Shared>, resource: &ApiResource) -> client::Store<PartialObject> {
    let kind = Arc::new(resource.clone());
    let api = shared.client.metadata(resource, None);
    let sink = shared.clone();
    let informer = Informer::new(api, ListParams::default())
        .transform(trim)
        .on_event(move |event| match event {
            Event::Applied { new, .. } => {
                let node = Node {
                    resource: kind.clone(),
                    object: new,
                };
                let steps = sink.graph.lock().applied(node);
                sink.enqueue(steps);
            }
            Event::Deleted(last) => {
                sink.note_absent(last.uid());
                let steps = sink.graph.lock().deleted(last.uid());
                sink.enqueue(steps);
                sink.deletions
                    .tell(&kind.group, &kind.plural, last.namespace());
            }
        });
    informer.spawn_until(&shared.tasks, shared.stop.clone())
}

/// Drops all metadata but identity, owners and finalizers.
fn trim(object: &mut PartialObject) {
    object.api_version = String::new();
    object.kind = String::new();
    object.metadata.labels = None;
    object.metadata.annotations = None;
    object.metadata.generate_name = None;
    object.metadata.creation_timestamp = None;
}
