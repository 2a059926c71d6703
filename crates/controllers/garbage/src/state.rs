//! State shared by the collector's parts.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use base_task::{CancellationToken, Tasks};
use client::{ApiResource, Client};
use controllers_runtime::{Deletions, Queue, Setup};
use parking_lot::Mutex;

use crate::absent::RecentlyAbsent;
use crate::graph::{Graph, Step};

/// State shared by the collector's parts.
pub struct CollectorState {
    /// Owners and dependents.
    pub graph: Mutex<Graph>,
    /// Served resources by group and kind.
    pub kinds: Mutex<HashMap<(String, String), ApiResource>>,
    /// UIDs of objects that do not exist.
    pub absent: Mutex<RecentlyAbsent>,
    /// Resources with a watch, by group and kind.
    pub watched: Mutex<HashSet<(String, String)>>,
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
            watched: Mutex::new(HashSet::new()),
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

    /// Returns the resource of an owner reference's kind, if it is served.
    pub fn find_resource(&self, group: &str, kind: &str) -> Option<ApiResource> {
        self.kinds
            .lock()
            .get(&(group.to_owned(), kind.to_owned()))
            .cloned()
    }

    /// Returns whether the object is known to be deleted.
    pub fn is_absent(&self, uid: &str) -> bool {
        self.absent.lock().contains(uid)
    }

    /// Records that the object is deleted.
    pub fn record_absent(&self, uid: &str) {
        self.absent.lock().insert(uid, Instant::now());
    }
}
