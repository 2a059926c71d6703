//! An event as a component reports it, before it is correlated and written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventType {
    /// Returns the value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event about an object, before correlation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventRecord {
    pub(crate) regarding: ObjectReference,
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) at: Timestamp,
}
