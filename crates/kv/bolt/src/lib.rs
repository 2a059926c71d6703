//! The file format of etcd's backend (bbolt): enough to write a whole file and to read one.
//!
//! Nothing of a file is trusted: offsets, counts and depths are checked, and a wrong one is an error that names it.

mod format;
mod read;
mod source;
mod write;

pub use read::{BoltError, File};
pub use source::{OnDisk, Source};
pub use write::Writer;
