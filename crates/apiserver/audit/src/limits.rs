//! The limit of an event's size.

use crate::event::Event;
use crate::level::Level;
use crate::log_line::write_json;
use std::sync::Arc;

const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The limit of an event's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLimits {
    /// Bytes of an event as JSON.
    pub event: usize,
}

impl EventLimits {
    /// Returns the event, without its bodies if it is too large with them; None if it is too large
    /// without them.
    pub(crate) fn fit_event(self, event: &Arc<Event>) -> Option<Arc<Event>> {
        if self.holds(event) {
            return Some(event.clone());
        }
        if event.level < Level::Request {
            return None;
        }
        let mut cut = Event {
            request_object: None,
            response_object: None,
            ..(**event).clone()
        };
        cut.annotations.insert(TRUNCATED.into(), "true".into());
        Some(Arc::new(cut)).filter(|cut| self.holds(cut))
    }

    fn holds(self, event: &Event) -> bool {
        let mut bytes = Vec::new();
        write_json(event, &mut bytes);
        // As upstream, with the line break of its encoder.
        bytes.len() < self.event
    }
}
