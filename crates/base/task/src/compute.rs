//! Long computations beside the tasks of a runtime.

use crate::blocking;
use std::sync::LazyLock;
use tokio::sync::Semaphore;

/// Computations that run at once. There is one number for the process, as there is one for its
/// processors: more computations would only make all of them slower.
static PLACES: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, |count| count.get());
    Semaphore::new(processors.max(2))
});

/// Runs a computation that may take long, such as the evaluation of an expression of a client. It
/// waits for its turn, and other tasks continue meanwhile.
pub async fn compute<T>(work: impl FnOnce() -> T) -> T {
    // The semaphore is never closed; without a permit the work runs all the same.
    let _permit = PLACES.acquire().await.ok();
    blocking(work)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_continue_during_a_computation() {
        let (sender, receiver) = mpsc::channel();
        let computation = tokio::spawn(async move {
            let other = tokio::spawn(async move { sender.send(()).unwrap() });
            // Waits for a task that only another thread can run.
            let continued =
                compute(move || receiver.recv_timeout(Duration::from_secs(20)).is_ok()).await;
            other.await.unwrap();
            continued
        });
        assert!(computation.await.unwrap());
    }

    #[tokio::test]
    async fn computation_runs_on_a_runtime_of_one_thread() {
        assert_eq!(compute(|| 1).await, 1);
    }
}
