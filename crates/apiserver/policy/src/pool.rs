//! Threads for evaluations, so that an expensive policy does not hold up other requests.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Runs evaluations, of which each may take a second, beside the tasks of other requests.
pub struct EvaluationPool(Semaphore);

impl Default for EvaluationPool {
    fn default() -> Self {
        // More than the processors would only make all evaluations slower.
        let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
        EvaluationPool(Semaphore::new(processors.max(2)))
    }
}

impl EvaluationPool {
    /// Runs an evaluation in its turn.
    pub async fn evaluate<T>(&self, evaluation: impl FnOnce() -> T) -> T {
        // The semaphore is never closed; without a permit the evaluation runs all the same.
        let _permit = self.0.acquire().await.ok();
        run_blocking(evaluation)
    }
}

/// Runs a computation on this thread, and moves the other tasks of the thread to another one.
pub fn run_blocking<T>(computation: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(computation),
        // A runtime of one thread, as tests have it, has no other thread.
        _ => computation(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_continue_during_an_evaluation() {
        let (sender, receiver) = mpsc::channel();
        let evaluation = tokio::spawn(async move {
            let pool = EvaluationPool::default();
            let other = tokio::spawn(async move { sender.send(()).unwrap() });
            // Waits for a task that only another thread can run.
            let continued = pool
                .evaluate(move || receiver.recv_timeout(Duration::from_secs(20)).is_ok())
                .await;
            other.await.unwrap();
            continued
        });
        assert!(evaluation.await.unwrap());
    }

    #[tokio::test]
    async fn evaluation_runs_on_a_runtime_of_one_thread() {
        assert_eq!(EvaluationPool::default().evaluate(|| 1).await, 1);
    }
}
