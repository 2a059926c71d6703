//! The state as a snapshot file of etcd's (3.4 to 3.6), and back.
//!
//! Such a file is a bbolt database with a SHA-256 of itself behind it. Revisions are etcd's records, byte by byte; leases,
//! users, roles, members and what is known of the log have a bucket each. Both ways go piece by piece: the size of a file
//! does not matter for memory. The layout of pages is `kv-bolt`'s; here is what is in them.

mod error;
mod export;
mod import;
mod records;

pub use error::InterchangeError;
pub use export::export;
pub use import::{Contents, FileStatus, file_status, import, open};
