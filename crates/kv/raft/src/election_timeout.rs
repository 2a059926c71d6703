//! The election timeout, adapted to the latency of disk and network.

use std::time::Duration;

/// Upper bound of the adapted election timeout.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the election timeout, extended to ten times the latency of disk and network if these are
/// slow.
pub(crate) fn adapt_timeout(
    configured: Duration,
    sync: Duration,
    round_trip: Duration,
) -> Duration {
    // A heartbeat waits for the sync of the entries before it. With a fixed timeout a slow disk
    // would look like a dead leader.
    configured.max(((sync + round_trip) * 10).min(MAX_TIMEOUT))
}
