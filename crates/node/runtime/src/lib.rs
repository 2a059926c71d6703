//! Client of the container runtime: CRI v1 over a Unix socket, its events, and container log files.
//!
//! Invariant: this crate decides nothing. It passes CRI's own messages ([`v1`]); labels and
//! annotations are upstream's, so that our kubelet and a stock kubelet each find the other's
//! containers.

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
