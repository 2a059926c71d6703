//! The container runtime as the kubelet sees it: CRI v1 over a Unix socket, its events, and container log files.
//!
//! Invariant: nothing here decides anything. What is said to the runtime is in CRI's own messages ([`v1`]); labels and
//! annotations are upstream's, so that a stock kubelet finds our containers and we find its.

mod client;
mod error;
mod events;
mod folder;
mod images;
pub mod labels;
pub mod logs;

pub use client::{ExecOutput, Runtime};
pub use error::{Result, RuntimeError};
pub use events::{Change, EventSource};
pub use folder::FolderWatch;
pub use proto_cri::v1;
