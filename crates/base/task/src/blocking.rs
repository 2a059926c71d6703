//! Blocking work in async tasks.

use std::cell::Cell;

use tokio::runtime::{Handle, RuntimeFlavor};

thread_local! {
    /// True while the thread runs work that was passed to [`blocking`].
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
}

/// Restores the thread's mark, after a panic too.
struct Marked {
    before: bool,
}

impl Drop for Marked {
    fn drop(&mut self) {
        MAY_BLOCK.set(self.before);
    }
}

/// Runs `work` without keeping other tasks from running if the runtime has other threads. Outside
/// of a runtime it just runs.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    let marked = || {
        let _marked = Marked {
            before: MAY_BLOCK.replace(true),
        };
        work()
    };
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        // `block_in_place` panics on a current-thread runtime, which tests use. There the work just
        // runs.
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(marked),
        _ => marked(),
    }
}

/// Panics in debug builds if the caller blocks a thread of the runtime: code that walks or removes
/// whole trees begins with it, so that every test which reaches such code shows a caller that
/// forgot [`blocking`].
#[track_caller]
pub fn assert_may_block() {
    debug_assert!(
        MAY_BLOCK.get() || Handle::try_current().is_err(),
        "blocking work outside of base_task::blocking"
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn blocking_work_leaves_the_runtime_to_other_tasks() {
        let (sender, receiver) = std::sync::mpsc::channel();
        // On the only worker thread: the work ends when another task has run.
        let worker = tokio::spawn(async move {
            tokio::spawn(async move { sender.send(()) });
            blocking(|| receiver.recv_timeout(Duration::from_secs(30)))
        });
        worker.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn threads_of_the_runtime_may_block_inside_of_blocking_only() {
        let refused = || std::panic::catch_unwind(assert_may_block).is_err();
        assert!(refused());
        blocking(assert_may_block);
        assert!(std::panic::catch_unwind(|| blocking(|| panic!("planted"))).is_err());
        assert!(refused(), "the mark goes with the work, even if it panics");
        std::thread::spawn(assert_may_block).join().unwrap();
    }
}
