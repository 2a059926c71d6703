//! Blocking work in async tasks.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs blocking work. On a multi-threaded runtime, other tasks of this thread move to another one.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
