//! State shared by the collector's parts.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use base_task::{CancellationToken, Tasks};
use client::{ApiResource, Client};
use controllers_runtime::{Deletions, Queue, Setup};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::absent::RecentlyAbsent;
use crate::graph::{Graph, Step};

/// A watch of one resource.
pub struct Watch {
    /// Resource, in the version that is watched.
    pub resource: ApiResource,
    /// Ends the watch.
    pub stop: CancellationToken,
}

/// State shared by the collector's parts.
pub struct CollectorState {
    /// Owners and dependents.
    pub graph: Mutex<Graph>,
    /// Served resources by apiVersion and kind.
    pub kinds: Mutex<HashMap<(String, String), ApiResource>>,
    /// UIDs of objects that do not exist.
    pub absent: Mutex<RecentlyAbsent>,
    /// Watches by group and plural.
    pub watches: Mutex<HashMap<(String, String), Watch>>,
    /// Notified when discovery may have changed.
    pub changed: Notify,
    /// Set when every watched resource has its first list.
    pub synced: AtomicBool,
    /// Subscribers of deletions.
    pub deletions: Deletions,
    /// Keys of steps.
    pub queue: Queue,
    /// Client of the watches.
    pub client: Client,
    /// Tasks of the watches.
    pub tasks: Tasks,
    /// Cancelled at the end of the term of leadership.
    pub stop: CancellationToken,
}

impl CollectorState {
    /// Creates the state of one term of leadership.
    pub fn new(setup: &Setup, stop: &CancellationToken, deletions: &Deletions) -> Self {
        Self {
            graph: Mutex::new(Graph::default()),
            kinds: Mutex::new(HashMap::new()),
            absent: Mutex::new(RecentlyAbsent::new(Instant::now())),
            watches: Mutex::new(HashMap::new()),
            changed: Notify::new(),
            synced: AtomicBool::new(false),
            deletions: deletions.clone(),
            queue: Queue::new(),
            client: setup.client.clone(),
            tasks: setup.tasks.clone(),
            stop: stop.clone(),
        }
    }

    /// Queues the steps that the graph returned.
    pub fn enqueue_steps(&self, steps: Vec<Step>) {
        for step in steps {
            self.queue.add(step.key());
        }
    }

    /// Returns the resource of an owner reference, if its kind is served in its version.
    pub fn find_resource(&self, api_version: &str, kind: &str) -> Option<ApiResource> {
        self.kinds
            .lock()
            .get(&(api_version.to_owned(), kind.to_owned()))
            .cloned()
    }

    /// Returns whether the owner of a dependent in this namespace is known to be absent.
    pub fn is_absent(&self, namespace: &str, reference: &OwnerReference) -> bool {
        let absent = self.absent.lock();
        absent.contains(&reference.uid) || absent.contains(&describe_owner(namespace, reference))
    }

    /// Records that an object with this UID was deleted.
    pub fn record_deleted(&self, uid: &str) {
        self.absent.lock().insert(uid, Instant::now());
    }

    /// Records that the owner that a dependent in this namespace names does not exist.
    pub fn record_absent(&self, namespace: &str, reference: &OwnerReference) {
        // Not by UID alone: a reference may have the UID of an existing object beside another name,
        // and the dependents of that object must stay.
        let owner = describe_owner(namespace, reference);
        self.absent.lock().insert(&owner, Instant::now());
    }

    /// Removes an object that does not exist from the graph, and queues what waited for it.
    pub fn forget_node(&self, uid: &str) {
        let steps = self.graph.lock().remove_node(uid);
        self.enqueue_steps(steps);
    }
}

fn describe_owner(namespace: &str, reference: &OwnerReference) -> String {
    let OwnerReference {
        api_version,
        kind,
        name,
        uid,
        ..
    } = reference;
    format!("{api_version}\n{kind}\n{namespace}\n{name}\n{uid}")
}
