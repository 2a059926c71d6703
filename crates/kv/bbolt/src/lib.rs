//! The file format of etcd's backend (bbolt): enough to write and to read a whole file.
//!
//! Files are untrusted: offsets, counts and depths are checked, and an invalid one is an error that
//! names it.

mod format;
mod read;
mod source;
mod write;

pub use read::{BoltError, File};
pub use source::{FileSource, Source};
pub use write::Writer;
