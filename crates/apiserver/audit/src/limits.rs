//! Truncation: an event above the limit loses its bodies, and is dropped if it is too large without
//! them.

use crate::event::Event;
use crate::level::Level;
use crate::log_line::HEAD;
use std::sync::Arc;

const TRUNCATED: &str = "audit.k8s.io/truncated";
/// Bytes of a line beside the members: brace and line break.
const END: usize = 2;

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
        let mut cut = Event {
            request_object: None,
            response_object: None,
            ..(**event).clone()
        };
        // Without copies of the bodies, which may be much larger than the limit.
        if self.holds(&cut, event.bodies_length()) {
            return Some(event.clone());
        }
        if event.head.level < Level::Request {
            return None;
        }
        let annotations = &mut cut.tail.annotations;
        annotations.insert(TRUNCATED.into(), "true".into());
        let fits = self.holds(&cut, 0);
        fits.then(|| Arc::new(cut))
    }

    fn holds(self, event: &Event, bodies: usize) -> bool {
        let mut bytes = Vec::new();
        event.write_members(&mut bytes);
        HEAD.len() + END + bytes.len() + bodies <= self.event
    }
}
