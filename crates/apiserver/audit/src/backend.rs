//! The trait of backends.

use crate::event::Event;
use std::io;
use std::sync::Arc;

/// Records events.
#[async_trait::async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the name in metrics: `log` or `webhook`.
    fn name(&self) -> &'static str;
    /// Records events, and returns when that is done.
    ///
    /// # Errors
    /// The events are not recorded.
    async fn process_events(&self, events: &[Arc<Event>]) -> Result<(), BackendError>;
}

/// The reason why events are not recorded.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackendError {
    /// The server stops.
    #[error("the audit log is closed")]
    Closed,
    /// The log can't be written.
    #[error("can't write the audit log: {0}")]
    Write(#[source] Arc<io::Error>),
    /// The webhook can't be called, or does not accept the events.
    #[error("{0}")]
    Post(String),
}
