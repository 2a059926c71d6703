//! The write-ahead log: segments of checksummed frames, one `fdatasync` for everything that waits.
//!
//! Invariant: `done` is called only after the frame that holds the request is on disk, and a frame is written only
//! after the one before it is on disk. So a damaged frame with a valid one behind it was damaged after it had been
//! promised, and is refused. A damaged one at the end was never promised if one of its sectors was never written (they
//! are zeros before), and is cut off; if all were, it may have been promised, and is refused too. A failing write or sync ends
//! the process: the kernel may have dropped the pages, and nothing read back afterwards proves anything.

mod disk;
mod files;
mod folder;
mod frame;
mod recover;
mod wal;
mod writer;

pub use disk::{Disk, DiskFile, FileSystem};
pub use files::Upkeep;
pub use folder::{DataFolder, FolderError, Identity};
pub use recover::{Contents, WalError, look};
pub use wal::{Done, Entry, SyncObserver, Wal, WrittenBy};
pub use writer::{Frame, Writer};
