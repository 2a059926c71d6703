//! Snapshot files in the format of etcd 3.4 to 3.6: export and import of the state.
//!
//! A snapshot file is a bbolt database followed by its SHA-256. Revisions are etcd's records, byte
//! for byte; leases, users, roles, members and metadata of the log have a bucket each. Both
//! directions stream, so memory does not depend on the size of a file. `kv-bbolt` handles the
//! layout of pages, this crate their content.

mod error;
mod export;
mod import;
mod records;

pub use error::SnapshotFileError;
pub use export::export_snapshot;
pub use import::{Contents, FileStatus, file_status, import_snapshot, open_snapshot};
