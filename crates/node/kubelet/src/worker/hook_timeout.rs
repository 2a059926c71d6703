//! The timeout of lifecycle hooks.

use std::time::Duration;

/// Returns the time limit of a hook: 30 s for HTTP and TCP; exec hooks have none of their own.
pub(crate) fn hook_timeout(handler: &node_probes::Handler) -> Duration {
    match handler {
        node_probes::Handler::Exec(_) => Duration::ZERO,
        _ => Duration::from_secs(30),
    }
}
