//! Times of the next tries of a resize.

use crate::pod::Nanos;

/// When a resize is tried again.
#[derive(Debug, Default)]
pub(super) struct Resizes {
    /// Next try to apply resources, after a failure.
    pub(super) again: Option<Nanos>,
    /// Next try to allocate resources.
    pub(super) allocate_at: Option<Nanos>,
    /// Next try to write the allocation of an admitted pod, after a failure.
    pub(super) record_at: Option<Nanos>,
    /// Applying resources continues when a container has been started or stopped.
    pub(super) is_waiting: bool,
}

impl Resizes {
    /// Returns the earliest time.
    pub(super) fn next_at(&self) -> Option<Nanos> {
        let all = [self.again, self.allocate_at, self.record_at];
        all.into_iter().flatten().min()
    }
}
