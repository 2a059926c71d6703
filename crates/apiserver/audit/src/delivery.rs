//! The trait of backends.

use crate::event::Event;
use std::sync::Arc;

/// Records events.
#[async_trait::async_trait]
pub trait Delivery: Send + Sync + 'static {
    /// Returns the name in metrics: `log` or `webhook`.
    fn name(&self) -> &'static str;
    /// Records events, and returns when that is done.
    ///
    /// # Errors
    /// The reason why they are not recorded.
    async fn deliver(&self, events: &[Arc<Event>]) -> Result<(), String>;
}
