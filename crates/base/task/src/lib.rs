//! Starting and stopping: the token that ends a process, and the group of its background tasks.
//!
//! Invariant: every background task belongs to a `Tasks`, is named, and its panic is logged and ends the process'
//! root token, so that nothing dies in silence. Bare `tokio::spawn` is for work whose handle is awaited by its spawner.

mod blocking;
mod signals;
mod tasks;

pub use blocking::blocking;
pub use signals::shutdown_on_signals;
pub use tasks::Tasks;
pub use tokio_util::sync::CancellationToken;
