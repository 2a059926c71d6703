//! Segment files: names, creation, recycling.
//!
//! A segment gets its name only when its head is on disk, so a named segment always begins with a valid frame.

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Record};
use crate::wal::Shared;
use bytes::BytesMut;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size to which a segment is preallocated, and at which the next one begins.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;
const SPARE: &str = "spare.tmp";
const NEXT: &str = "next.tmp";
const FILLING: &str = "filling.tmp";
const FILL_BYTES: usize = 1 << 20;

/// What to do about a refusal, where there is something.
pub(crate) fn remedy(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull => "; free some space and start it again",
        io::ErrorKind::PermissionDenied => "; give this user the folder, or start it as the user who owns it",
        _ => "",
    }
}

/// Path of the segment whose first frame has this sequence number.
pub(crate) fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:016x}.wal"))
}

/// First sequence numbers of the segments there are, in order.
pub(crate) fn list(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<u64>> {
    let first = |name: String| u64::from_str_radix(name.strip_suffix(".wal")?, 16).ok();
    let mut found: Vec<u64> = disk.list(folder)?.into_iter().filter_map(first).collect();
    found.sort_unstable();
    Ok(found)
}

/// A segment that was made.
pub(crate) struct Made {
    pub file: Arc<dyn DiskFile>,
    /// Of its head.
    pub size: u64,
    /// Blocks up to here have been written before.
    pub written: u64,
}

/// Makes the segment that begins with frame `first`, which holds `head`.
pub(crate) fn create(disk: &dyn Disk, folder: &Path, first: u64, head: &[Record], size: u64) -> io::Result<Made> {
    let spare = folder.join(SPARE);
    let next = folder.join(NEXT);
    let recycled = disk.rename(&spare, &next).is_ok();
    if !recycled {
        let _ = disk.remove(&next);
    }
    let file = disk.create(&next)?;
    file.allocate(size)?;
    let mut bytes = BytesMut::new();
    frame::encode(&mut bytes, first, head);
    file.write_at(&bytes, 0)?;
    file.sync_all()?;
    disk.rename(&next, &path(folder, first))?;
    disk.sync_folder(folder)?;
    let head = bytes.len() as u64;
    Ok(Made { file, size: head, written: if recycled { size } else { head } })
}

/// Writes a spare segment full of zeros, if there is none, beside whatever else goes on. Without one, the next segment is
/// written for the first time while others wait.
pub(crate) fn prepare_spare(shared: &Arc<Shared>, size: u64) {
    let shared = shared.clone();
    let work = move || {
        let (spare, filling) = (shared.folder.join(SPARE), shared.folder.join(FILLING));
        if shared.disk.exists(&spare) {
            return;
        }
        let filled = fill(&*shared.disk, &filling, size).and_then(|()| {
            // A segment may have been given back meanwhile.
            if shared.disk.exists(&spare) { shared.disk.remove(&filling) } else { shared.disk.rename(&filling, &spare) }
        });
        if filled.is_err() {
            // No space, perhaps; whoever needs the segment will say so.
            let _ = shared.disk.remove(&filling);
        }
    };
    // A segment that is not ready is made when it is needed.
    let _ = std::thread::Builder::new().name("wal spare".to_owned()).spawn(work);
}

fn fill(disk: &dyn Disk, path: &Path, size: u64) -> io::Result<()> {
    let file = disk.create(path)?;
    file.allocate(size)?;
    let zeros = vec![0; FILL_BYTES];
    for at in (0..size).step_by(FILL_BYTES) {
        file.write_at(&zeros, at)?;
        // In steps, so that a sync of the log does not wait for all of it.
        file.sync_data()?;
    }
    file.sync_all()
}

/// Gives a segment's space to the next one that is made, or back to the file system.
pub(crate) fn recycle(disk: &dyn Disk, folder: &Path, first: u64) -> io::Result<()> {
    let spare = folder.join(SPARE);
    if disk.exists(&spare) {
        return disk.remove(&path(folder, first));
    }
    disk.rename(&path(folder, first), &spare)
}
