//! All sinks of a server.

use crate::event::Event;
use crate::metrics::AuditMetrics;
use crate::sink::{Pending, Sink};
use std::sync::Arc;

/// The sinks of a server; each gets every event.
pub(crate) struct Sinks {
    pub(crate) all: Vec<Sink>,
    pub(crate) metrics: Arc<AuditMetrics>,
}

/// An event could not be recorded, and the mode of the backend rejects the request for that.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to store audit event")]
pub struct Rejected;

impl Sinks {
    /// Hands an event to all sinks at once; the result waits for those that block requests.
    ///
    /// Nothing is lost if the client leaves meanwhile: the sinks have the event before the first
    /// wait.
    pub(crate) fn send_event(&self, event: &Arc<Event>) -> PendingEvent {
        self.metrics.count_event();
        PendingEvent(
            self.all
                .iter()
                .filter_map(|sink| sink.send(event))
                .collect(),
        )
    }
}

/// An event that some sinks are recording.
pub(crate) struct PendingEvent(Vec<Pending>);

impl PendingEvent {
    /// Waits for the sinks that block requests.
    ///
    /// # Errors
    /// A sink that is strict could not record the event.
    pub(crate) async fn wait(self) -> Result<(), Rejected> {
        let mut outcome = Ok(());
        for pending in self.0 {
            if !pending.wait().await {
                outcome = Err(Rejected);
            }
        }
        outcome
    }
}
