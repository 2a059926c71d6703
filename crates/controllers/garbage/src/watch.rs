//! Metadata watches of every kind that can be deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base_task::CancellationToken;
use client::{ApiResource, Event, Informer, ListParams, PartialObject};
use controllers_runtime::Meta;
use controllers_runtime::discovery::{self, Discovered, Served};

use crate::graph::Node;
use crate::state::{CollectorState, Watch};

/// Kinds that are not collected, because they expire.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Kinds whose objects add and remove resources.
const DEFINING: [(&str, &str); 2] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
];

/// Maximum time for which a kind that can't be listed delays the collection of all others.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two reads of discovery if nothing suggests a change; upstream's period.
const PERIOD: Duration = Duration::from_secs(30);
/// Minimum time between two reads: objects with owners of unknown kinds request them, too.
const PAUSE: Duration = Duration::from_secs(1);
/// Additional reads after a definition or an APIService has changed, because its resources appear
/// some time later.
const LATE_READS: u32 = 3;

/// Watches all kinds that can be deleted, and follows discovery.
pub async fn watch_resources(shared: Arc<CollectorState>) {
    tokio::select! {
        () = shared.stop.clone().cancelled_owned() => {}
        () = follow_discovery(&shared) => {}
    }
}

async fn follow_discovery(shared: &Arc<CollectorState>) {
    let mut late_reads: u32 = 0;
    loop {
        match discovery::discover_resources(&shared.client).await {
            // Upstream does not trust an empty discovery, either.
            Ok(found) if found.resources.is_empty() => {}
            Ok(found) => apply_discovery(shared, &found).await,
            Err(error) => tracing::warn!(%error, "garbage collection waits for discovery"),
        }
        tokio::time::sleep(PAUSE).await;
        if late_reads > 0 || !shared.synced.load(Ordering::Acquire) {
            late_reads = late_reads.saturating_sub(1);
            continue;
        }
        let changed = tokio::time::timeout(PERIOD, shared.changed.notified()).await;
        late_reads = if changed.is_ok() { LATE_READS } else { 0 };
    }
}

/// Starts and stops watches, and queues all unverified objects once every new kind is listed.
async fn apply_discovery(shared: &Arc<CollectorState>, found: &Discovered) {
    update_kinds(shared, found);
    let ended = stop_watches(shared, found);
    let mut started = Vec::new();
    for served in &found.resources {
        let resource = &served.resource;
        let id = (resource.group.clone(), resource.plural.clone());
        let version = (resource.group.clone(), resource.version.clone());
        // As upstream, a list of a server that does not answer would only delay the others.
        let failed = found.failed_versions.contains(&version);
        if failed || !is_collectable(served) || shared.watches.lock().contains_key(&id) {
            continue;
        }
        let stop = shared.stop.child_token();
        started.push(watch_resource(shared, resource, stop.clone()));
        let resource = resource.clone();
        shared.watches.lock().insert(id, Watch { resource, stop });
    }
    let first = !shared.synced.load(Ordering::Acquire);
    if !first && !ended && started.is_empty() {
        return;
    }
    let listed = futures::future::join_all(started.iter().map(client::Store::wait_until_synced));
    // Upstream waits for all caches. One broken aggregated API must not stop garbage collection in
    // the whole cluster.
    if tokio::time::timeout(LIST_TIMEOUT, listed).await.is_err() {
        tracing::warn!("some kinds can't be listed; their objects are not collected until then");
    }
    shared.synced.store(true, Ordering::Release);
    // Objects of a new kind may have been deleted before its first list, and those of a removed
    // kind with it.
    shared.deletions.notify_gap();
    // Owners may have been listed after their dependents, so doubts are resolved only when all
    // lists are complete.
    let unverified = shared.graph.lock().list_unverified();
    shared.enqueue_steps(unverified);
}

fn is_collectable(served: &Served) -> bool {
    let resource = &served.resource;
    let ignored = IGNORED.contains(&(resource.group.as_str(), resource.plural.as_str()));
    !ignored
        && ["delete", "list", "watch"]
            .iter()
            .all(|verb| served.has_verb(verb))
}

/// Records the served kinds in all their versions. Those of groups that could not be read stay.
fn update_kinds(shared: &CollectorState, found: &Discovered) {
    let mut kinds = shared.kinds.lock();
    kinds.retain(|_, resource| found.has_failed_version(&resource.group));
    for served in found.resources.iter().chain(&found.other_versions) {
        let resource = &served.resource;
        let id = (resource.api_version(), resource.kind.clone());
        kinds.insert(id, resource.clone());
    }
}

/// Stops the watches of resources that are no longer served, or served in another version, scope or
/// kind. Returns whether there were any.
fn stop_watches(shared: &CollectorState, found: &Discovered) -> bool {
    let served: HashMap<_, _> = found
        .resources
        .iter()
        .filter(|served| is_collectable(served))
        .map(|served| {
            let resource = &served.resource;
            ((&*resource.group, &*resource.plural), resource)
        })
        .collect();
    let mut ended = false;
    let mut gone = Vec::new();
    shared.watches.lock().retain(|(group, plural), watch| {
        let now = served.get(&(group.as_str(), plural.as_str()));
        let same = now.is_some_and(|now| {
            now.version == watch.resource.version
                && now.kind == watch.resource.kind
                && now.namespaced == watch.resource.namespaced
        });
        // The server of such a group may come back with the same objects.
        if same || found.has_failed_version(group) {
            return true;
        }
        watch.stop.cancel();
        ended = true;
        if now.is_none() {
            gone.push((group.clone(), plural.clone()));
        }
        false
    });
    for (group, plural) in gone {
        let steps = shared.graph.lock().remove_resource(&group, &plural);
        shared.enqueue_steps(steps);
    }
    ended
}

fn watch_resource(
    shared: &Arc<CollectorState>,
    resource: &ApiResource,
    stop: CancellationToken,
) -> client::Store<PartialObject> {
    let kind = Arc::new(resource.clone());
    let api = shared.client.metadata(resource, None);
    let (sink, ended) = (shared.clone(), stop.clone());
    let defines = DEFINING.contains(&(resource.group.as_str(), resource.plural.as_str()));
    let informer = Informer::new(api, ListParams::default())
        .transform(trim_metadata)
        .on_event(move |event| {
            if defines {
                sink.changed.notify_one();
            }
            // Else the objects of a removed resource could come back into the graph.
            if !ended.is_cancelled() {
                apply_event(&sink, &kind, event);
            }
        });
    informer.spawn_until(&shared.tasks, stop)
}

fn apply_event(shared: &CollectorState, kind: &Arc<ApiResource>, event: Event<PartialObject>) {
    match event {
        Event::Applied { new, .. } => {
            let node = Node {
                resource: kind.clone(),
                object: new,
            };
            let steps = shared.graph.lock().apply_node(node);
            shared.enqueue_steps(steps);
        }
        Event::Deleted(last) => {
            // Before the graph returns its steps: a worker may check a dependent at once, and
            // should not read the owner again.
            shared.record_deleted(last.uid());
            shared.forget_node(last.uid());
            shared
                .deletions
                .notify(&kind.group, &kind.plural, last.namespace());
        }
    }
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
