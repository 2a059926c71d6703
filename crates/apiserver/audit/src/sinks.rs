//! All sinks of a server.

use crate::event::Event;
use crate::metrics::AuditMetrics;
use crate::sink::Sink;
use std::sync::Arc;

/// The sinks of a server; each gets every event.
pub(crate) struct Sinks {
    pub(crate) all: Vec<Sink>,
    pub(crate) metrics: Arc<AuditMetrics>,
}

impl Sinks {
    /// Sends an event to all sinks; returns false if the request must be rejected.
    pub(crate) async fn send_event(&self, event: &Arc<Event>) -> bool {
        self.metrics.count_event();
        let mut accepted = true;
        for sink in &self.all {
            accepted &= sink.send(event).await;
        }
        accepted
    }

    /// Sends an event to all sinks without waiting for them.
    pub(crate) fn send_event_later(&self, event: &Arc<Event>) {
        self.metrics.count_event();
        for sink in &self.all {
            sink.send_later(event);
        }
    }
}
