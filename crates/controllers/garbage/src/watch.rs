//! Metadata watches of every kind that can be deleted.

use std::sync::Arc;
use std::time::Duration;

use client::{ApiResource, Event, Informer, ListParams, PartialObject};
use controllers_runtime::Meta;
use controllers_runtime::discovery::{self, Discovered};

use crate::graph::Node;
use crate::state::CollectorState;

/// Kinds that are not collected, because they expire.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Maximum time for which a kind that can't be listed delays the collection of all others.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Discovers kinds, watches them, and queues all unverified objects once every kind is listed.
pub async fn watch_resources(shared: Arc<CollectorState>) {
    tokio::select! {
        () = shared.stop.clone().cancelled_owned() => {}
        () = watch_when_discovered(&shared) => {}
    }
}

async fn watch_when_discovered(shared: &Arc<CollectorState>) {
    let found = loop {
        match discovery::discover_resources(&shared.client).await {
            Ok(found) if !found.resources.is_empty() => break found,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "garbage collection waits for discovery"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    watch_new_resources(shared, &found).await;
}

/// Reads discovery again, for kinds that were added later.
pub async fn refresh_resources(shared: &Arc<CollectorState>) -> Result<(), client::Error> {
    let found = discovery::discover_resources(&shared.client).await?;
    watch_new_resources(shared, &found).await;
    Ok(())
}

async fn watch_new_resources(shared: &Arc<CollectorState>, found: &Discovered) {
    let mut waits = Vec::new();
    for served in &found.resources {
        let resource = &served.resource;
        let id = (resource.group.clone(), resource.kind.clone());
        shared.kinds.lock().insert(id.clone(), resource.clone());
        let ignored = IGNORED.contains(&(resource.group.as_str(), resource.plural.as_str()));
        let usable = ["delete", "list", "watch"]
            .iter()
            .all(|v| served.has_verb(v));
        if usable && !ignored && shared.watched.lock().insert(id) {
            waits.push(watch_resource(shared, resource));
        }
    }
    let listed = futures::future::join_all(waits.iter().map(client::Store::wait_until_synced));
    // Upstream waits for all caches. One broken aggregated API must not stop garbage collection in
    // the whole cluster.
    if tokio::time::timeout(LIST_TIMEOUT, listed).await.is_err() {
        tracing::warn!("some kinds can't be listed; their objects are not collected until then");
    }
    shared
        .synced
        .store(true, std::sync::atomic::Ordering::Release);
    // Owners may have been listed after their dependents, so doubts are resolved only when all
    // lists are complete.
    let unverified = shared.graph.lock().list_unverified();
    shared.enqueue_steps(unverified);
}

fn watch_resource(
    shared: &Arc<CollectorState>,
    resource: &ApiResource,
) -> client::Store<PartialObject> {
    let kind = Arc::new(resource.clone());
    let api = shared.client.metadata(resource, None);
    let sink = shared.clone();
    let informer = Informer::new(api, ListParams::default())
        .transform(trim_metadata)
        .on_event(move |event| match event {
            Event::Applied { new, .. } => {
                let node = Node {
                    resource: kind.clone(),
                    object: new,
                };
                let steps = sink.graph.lock().apply_node(node);
                sink.enqueue_steps(steps);
            }
            Event::Deleted(last) => {
                // Before the graph returns its steps: a worker may check a dependent at once, and
                // should not read the owner again.
                sink.record_absent(last.uid());
                let steps = sink.graph.lock().remove_node(last.uid());
                sink.enqueue_steps(steps);
                sink.deletions
                    .notify(&kind.group, &kind.plural, last.namespace());
            }
        });
    informer.spawn_until(&shared.tasks, shared.stop.clone())
}

/// Drops all metadata but identity, owners and finalizers.
fn trim_metadata(object: &mut PartialObject) {
    object.api_version = String::new();
    object.kind = String::new();
    // The watches cover every object of the cluster, so their memory is what the controller manager
    // needs most of.
    object.metadata.labels = None;
    object.metadata.annotations = None;
    object.metadata.generate_name = None;
    object.metadata.creation_timestamp = None;
}
