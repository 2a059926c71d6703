//! Garbage collection: deletes objects whose last owner was deleted.
//!
//! A graph of owners and dependents is fed by metadata watches of every kind that can be deleted.
//! The graph only selects candidates: before a deletion the object and its owners are read from the
//! API server, and the deletion carries their UID and version. Orphaning removes the owner
//! reference from all dependents before the owner's finalizer is removed.

mod absent;
mod collect;
mod graph;
mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base_task::{CancellationToken, Tasks};
use client::{ApiResource, Client, Error};
use controllers_runtime::{Action, Drive, Executor, Queue, Setup};
use parking_lot::Mutex;

use crate::quota::Deletions;
pub use absent::RecentlyAbsent;
pub use graph::{Graph, Node, Step};

/// Kinds that are not collected, because they expire.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// State shared by the collector's parts.
pub struct Shared {
    graph: Mutex<Graph>,
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
    absent: Mutex<RecentlyAbsent>,
    watched: Mutex<HashSet<(String, String)>>,
    synced: AtomicBool,
    deletions: Deletions,
    queue: Queue,
    client: Client,
    tasks: Tasks,
    stop: CancellationToken,
}

impl Shared {
    /// Queues the steps that the graph returned.
    fn enqueue(&self, steps: Vec<Step>) {
        for step in steps {
            self.queue.add(step.key());
        }
    }

    /// Returns the resource of an owner reference's kind, if it is served.
    fn kind(&self, group: &str, kind: &str) -> Option<ApiResource> {
        self.kinds
            .lock()
            .get(&(group.to_owned(), kind.to_owned()))
            .cloned()
    }

    fn is_absent(&self, uid: &str) -> bool {
        self.absent.lock().contains(uid)
    }

    fn note_absent(&self, uid: &str) {
        self.absent.lock().insert(uid, Instant::now());
    }
}

struct Collector {
    shared: Arc<Shared>,
}

/// Sets up the garbage collector; its watches end with `stop` and report deletions to `deletions`.
pub fn garbage_collector(
    setup: &mut Setup,
    workers: usize,
    stop: &CancellationToken,
    deletions: &Deletions,
) {
    let queue = Queue::new();
    let shared = Arc::new(Shared {
        graph: Mutex::new(Graph::default()),
        kinds: Mutex::new(HashMap::new()),
        absent: Mutex::new(RecentlyAbsent::new(Instant::now())),
        watched: Mutex::new(HashSet::new()),
        synced: AtomicBool::new(false),
        deletions: deletions.clone(),
        queue: queue.clone(),
        client: setup.client.clone(),
        tasks: setup.tasks.clone(),
        stop: stop.clone(),
    });
    setup.drive(
        "generic-garbage-collector",
        workers,
        queue,
        Collector {
            shared: shared.clone(),
        },
    );
    setup
        .tasks
        .spawn("garbage-collector-watches", watch::run(shared));
}

#[async_trait]
impl Drive for Collector {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(step) = Step::parse(key) else {
            return Ok(Vec::new());
        };
        if !self.shared.synced.load(Ordering::Acquire) {
            // With an incomplete graph, orphaning and foreground deletion would miss dependents.
            return Ok(vec![Action::Requeue(Duration::from_millis(500))]);
        }
        let node = self.shared.graph.lock().node(step.uid()).cloned();
        let Some(node) = node else {
            return Ok(Vec::new());
        };
        let client = executor.client().await?;
        match step {
            Step::Check(_) => collect::check(&self.shared, &client, &node).await?,
            Step::Orphan(_) => collect::orphan(&self.shared, &client, &node).await?,
        }
        Ok(Vec::new())
    }
}
