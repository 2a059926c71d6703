//! A group of named background tasks.

use futures::FutureExt;
use futures::future::BoxFuture;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A background task that ended although its component still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the background task {name} {end}; the component stops so that its supervisor restarts it")]
pub struct TaskFailed {
    /// The task's name.
    pub name: &'static str,
    /// Panicked or returned.
    pub end: TaskEnd,
}

/// The way in which a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskEnd {
    /// The task panicked.
    Panicked,
    /// The task returned before shutdown, although it is critical.
    Returned,
}

impl std::fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TaskEnd::Panicked => "panicked",
            TaskEnd::Returned => "ended early",
        })
    }
}

/// The effect that the end of a task has.
#[derive(Clone, Copy)]
enum EndEffect {
    /// May return at any time; its panic stops the component.
    Auxiliary,
    /// Its panic, and its end before shutdown, stop the component.
    Critical,
    /// Stops nothing.
    Isolated,
}

/// Spawns tasks, cancels them and waits for them. Cheap to clone.
///
/// A component without one of its tasks is restarted instead of continuing partially: a task that
/// fails cancels the group's token, and [`Tasks::finish`] then returns the failure, which ends the
/// process with exit code 1.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: CancellationToken,
    failure: Arc<OnceLock<TaskFailed>>,
}

impl Tasks {
    /// Returns an empty group that `shutdown` cancels.
    pub fn new(shutdown: CancellationToken) -> Self {
        Tasks {
            tracker: TaskTracker::new(),
            shutdown,
            failure: Arc::default(),
        }
    }

    /// Returns the token that tasks watch.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs `future` in the background; it may end at any time. A panic stops the component.
    pub fn spawn<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_boxed(name, EndEffect::Auxiliary, Box::pin(future));
    }

    /// Runs `future`, which the component requires: a panic, or an end before shutdown, stops the
    /// component.
    pub fn spawn_critical<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_boxed(name, EndEffect::Critical, Box::pin(future));
    }

    /// Runs `future`, which serves one client or one object: its panic is logged and affects
    /// nothing else.
    pub fn spawn_isolated<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_boxed(name, EndEffect::Isolated, Box::pin(future));
    }

    /// Spawns a boxed future, because tokio's code around a task is compiled for each type of
    /// future.
    fn spawn_boxed(&self, name: &'static str, effect: EndEffect, future: BoxFuture<'static, ()>) {
        let tasks = self.clone();
        self.tracker.spawn(async move {
            // The panic itself is caught, because tokio would keep it in a handle that is never
            // awaited.
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            match (effect, ended) {
                (EndEffect::Isolated, Err(_)) => tracing::error!(
                    task = name,
                    "a task panicked; its request or object is abandoned"
                ),
                (EndEffect::Auxiliary | EndEffect::Critical, Err(_)) => {
                    tasks.record_failure(name, TaskEnd::Panicked);
                }
                // An end after shutdown is the normal one, an end before is a fault even without a
                // panic.
                (EndEffect::Critical, Ok(())) if !tasks.shutdown.is_cancelled() => {
                    tasks.record_failure(name, TaskEnd::Returned);
                }
                (_, Ok(())) => {}
            }
        });
    }

    fn record_failure(&self, name: &'static str, end: TaskEnd) {
        let failure = TaskFailed { name, end };
        tracing::error!(task = name, "{failure}");
        // The first failure is the cause; others follow from it.
        let _ = self.failure.set(failure);
        self.shutdown.cancel();
    }

    /// Returns the first failure of a task, if there was one.
    pub fn failure(&self) -> Option<TaskFailed> {
        self.failure.get().copied()
    }

    /// Waits for all tasks, at most for `limit`. Returns whether all have ended.
    pub async fn wait(&self, limit: Duration) -> bool {
        // A tracker that is open never becomes empty. Tasks can still be spawned afterwards.
        self.tracker.close();
        tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_ok()
    }

    /// Cancels the group and waits for its tasks, at most for `limit`.
    ///
    /// # Errors
    /// The first failure of a task.
    pub async fn finish(&self, limit: Duration) -> Result<(), TaskFailed> {
        self.shutdown.cancel();
        self.wait(limit).await;
        // Also if not all tasks ended in time: the failure is what the operator must see.
        self.failure().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn a_panic_stops_the_group_and_is_its_failure() {
        let tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("pump", async { panic!("planted") });
        tasks.shutdown().cancelled().await;
        let failure = TaskFailed {
            name: "pump",
            end: TaskEnd::Panicked,
        };
        assert_eq!(tasks.finish(Duration::from_secs(1)).await, Err(failure));
    }

    #[tokio::test]
    async fn a_critical_task_that_returns_stops_the_group() {
        let tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("helper", async {});
        tasks.spawn_critical("pump", async {});
        tasks.shutdown().cancelled().await;
        assert_eq!(
            tasks.failure(),
            Some(TaskFailed {
                name: "pump",
                end: TaskEnd::Returned
            })
        );
    }

    #[tokio::test]
    async fn a_critical_task_may_return_after_shutdown() {
        let tasks = Tasks::new(CancellationToken::new());
        let shutdown = tasks.shutdown().clone();
        tasks.spawn_critical("pump", async move { shutdown.cancelled().await });
        assert_eq!(tasks.finish(Duration::from_secs(1)).await, Ok(()));
    }

    #[tokio::test]
    async fn an_isolated_task_that_panics_stops_nothing_else() {
        let tasks = Tasks::new(CancellationToken::new());
        tasks.spawn_isolated("connection", async { panic!("planted") });
        assert!(tasks.wait(Duration::from_secs(1)).await);
        assert!(!tasks.shutdown().is_cancelled());
        assert_eq!(tasks.failure(), None);
    }
}
