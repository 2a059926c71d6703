//! The record of the supervisor's process.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};
use crate::files;
use crate::layout::Layout;
use crate::process::Record;

/// Name of the supervisor's own record.
pub(crate) const NAME: &str = "supervisor";

/// Returns the record of the running supervisor.
pub fn running_supervisor(layout: &Layout) -> Option<Record> {
    Record::load(&layout.record(NAME)).filter(Record::is_alive)
}

/// Keeps other processes from supervising or restoring the cluster. The kernel releases the lock
/// when the process exits.
pub fn lock_cluster(layout: &Layout) -> Result<File> {
    files::create_dir(layout.run(), 0o711)?;
    // A file of its own: the record is replaced by rename, and a lock belongs to the file and not
    // to its name.
    let path = layout.run().join("supervisor.lock");
    let file = files::open_lock_file(&path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::Refused(format!(
            "another supervisor, or a restore, holds {}",
            path.display()
        ))
    })?;
    Ok(file)
}
