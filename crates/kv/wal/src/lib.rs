//! The write-ahead log: segments of checksummed frames, with one `fdatasync` per group of waiting
//! requests.
//!
//! Invariant: `done` is called only after the frame of the request is on disk, and a frame is
//! written only after the previous one is on disk. A damaged frame before a valid one was therefore
//! acknowledged, and the log is rejected. A damaged frame at the end was never acknowledged if one
//! of its sectors was not written (these are zero), and is removed. If all sectors were written, it
//! may have been acknowledged, and the log is rejected. A failed write or sync exits the process:
//! the kernel may have dropped the pages, and reading them back proves nothing.

mod disk;
mod files;
mod folder;
mod frame;
mod recover;
mod shared;
mod wal;
mod writer;

pub use disk::{Disk, DiskFile, FileSystem};
pub use files::SegmentMaintenance;
pub use folder::{DataFolder, FolderError, Identity};
pub use recover::{Contents, WalError, read_log};
pub use shared::{Done, Entry, SyncObserver};
pub use wal::{Wal, WrittenBy};
pub use writer::{Frame, Writer};
