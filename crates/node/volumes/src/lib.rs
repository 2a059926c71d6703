//! Volumes on the node's file system: contents written atomically, mounts, ownership, sub-paths.
//!
//! Invariant: a path that a container can write to is never resolved by name through symbolic
//! links. Sub-paths are resolved beneath a file descriptor, and contents are written into a
//! directory of the kubelet's own.

mod atomic;
mod error;
mod host_path;
mod mounts;
mod ownership;
mod subpath;
mod usage;

pub use atomic::{Payload, PayloadFile, write_payload};
pub use error::{Result, VolumeError};
pub use host_path::check_host_path;
pub use mounts::Mounter;
pub use ownership::set_group;
pub use subpath::{clean_subpaths, prepare_subpath};
pub use usage::disk_usage;
