//! Memory for requests, for the process and for each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of bytes of requests in memory, for the process.
pub(crate) const PROCESS: usize = 128 << 20;

/// Maximum number of bytes of requests in memory, per connection.
pub(crate) const CONNECTION: usize = 32 << 20;

/// A memory budget in bytes.
pub struct Budget {
    pub(crate) left: AtomicUsize,
    pub(crate) above: Option<Arc<Budget>>,
}

impl Budget {
    /// Creates the budget of the process.
    pub fn new() -> Arc<Budget> {
        Arc::new(Budget {
            left: AtomicUsize::new(PROCESS),
            above: None,
        })
    }

    /// Creates the budget of a connection as a part of this one.
    pub fn connection(self: &Arc<Self>) -> Arc<Budget> {
        Arc::new(Budget {
            left: AtomicUsize::new(CONNECTION),
            above: Some(self.clone()),
        })
    }

    pub(crate) fn reserve_space(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        if self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_err()
        {
            return false;
        }
        // The connection's share first: a connection above its share leaves the process's alone.
        let taken = self
            .above
            .as_ref()
            .is_none_or(|above| above.reserve_space(bytes));
        if !taken {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    pub(crate) fn release_space(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.release_space(bytes);
        }
    }
}
