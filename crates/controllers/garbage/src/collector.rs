//! Set-up of the collector, and the step that each queue key stands for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use base_task::CancellationToken;
use client::Error;
use controllers_runtime::{Action, Deletions, Drive, Executor, Setup};

use crate::graph::Step;
use crate::state::CollectorState;
use crate::{collect, watch};

struct Collector {
    shared: Arc<CollectorState>,
}

/// Sets up the garbage collector; its watches end with `stop` and report deletions to `deletions`.
pub fn add_garbage_collector(
    setup: &mut Setup,
    workers: usize,
    stop: &CancellationToken,
    deletions: &Deletions,
) {
    let shared = Arc::new(CollectorState::new(setup, stop, deletions));
    setup.add_driver(
        "generic-garbage-collector",
        workers,
        shared.queue.clone(),
        Collector {
            shared: shared.clone(),
        },
    );
    setup
        .tasks
        .spawn("garbage-collector-watches", watch::watch_resources(shared));
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
        // The lock must not be held across the requests below.
        let node = self.shared.graph.lock().find_node(step.uid()).cloned();
        let Some(node) = node else {
            return Ok(Vec::new());
        };
        let client = executor.client().await?;
        match step {
            Step::Check(_) => collect::attempt_to_delete(&self.shared, &client, &node).await?,
            Step::Orphan(_) => collect::orphan_dependents(&self.shared, &client, &node).await?,
        }
        Ok(Vec::new())
    }
}
