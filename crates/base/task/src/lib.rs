//! Start and shutdown: the cancellation token of a process, and the group of its background tasks.
//!
//! Invariant: every background task belongs to a `Tasks` and has a name. A task that fails stops
//! its component, which exits with code 1 and is restarted; a task that serves one client is
//! isolated. `clippy.toml` forbids a bare `tokio::spawn`, whose panic goes unseen.

mod blocking;
mod compute;
mod signals;
mod tasks;

pub use blocking::{assert_may_block, blocking};
pub use compute::{ClientClass, ComputeClient, ComputeKind, compute};
pub use signals::shutdown_on_signals;
pub use tasks::{TaskEnd, TaskFailed, Tasks};
pub use tokio_util::sync::CancellationToken;
