//! A backup of a cluster: its objects, keys and settings in one file, from which `restore` makes
//! the cluster again, on this machine or another one.

mod archive;
mod parts;
mod restore;
mod save;
mod snapshot;

pub use restore::{RestoreOptions, restore_cluster};
pub use save::{BackupOptions, save_backup};
