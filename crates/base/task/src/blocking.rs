//! Work that keeps a thread waiting.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does it without keeping other tasks from running, where there are other threads; outside of a runtime nobody waits.
pub fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}
