//! A group of named background tasks.

use futures::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks, tells them to stop and waits for them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
}

impl Tasks {
    /// Tasks that are told to stop by `shutdown`.
    pub fn new(shutdown: CancellationToken) -> Self {
        Tasks { tracker: TaskTracker::new(), shutdown }
    }

    /// The token that tasks watch.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs `future` in the background. A panic is logged with the task's name and stops the whole group: a component
    /// that lost a part of itself must be restarted rather than limp on.
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shutdown = self.shutdown.clone();
        self.tracker.spawn(async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a background task panicked; stopping");
                shutdown.cancel();
            }
        });
    }

    /// Waits for all tasks, at most `limit` long. True when all ended.
    pub async fn wait(&self, limit: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait()).await.is_ok()
    }
}
