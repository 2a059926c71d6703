//! Segment files: names, creation, recycling.
//!
//! A segment gets its name only when its head is on disk, so a named segment always starts with a
//! valid frame. The rest of a segment after its frames is zero, which identifies a torn frame. A
//! used segment is filled with zeros in the background before it is used again. Rejected: zeroing
//! by `fallocate`. It is faster, but marks blocks as unwritten, so that the first sync of each
//! block waits for the file system's journal.

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Record};
use crate::shared::Shared;
use bytes::BytesMut;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size in bytes to which a segment is preallocated, and at which the next one starts.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;
/// A segment that is no longer used. Earlier versions reuse it without zeroing.
const SPARE: &str = "spare.tmp";
/// A zeroed segment.
const ZEROED: &str = "zeroed.tmp";
const NEXT: &str = "next.tmp";
const FILLING: &str = "filling.tmp";
const FILL_BYTES: usize = 1 << 20;

/// Returns advice for an error, or an empty text.
pub(crate) fn suggest_remedy(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull => "; free some space and start it again",
        io::ErrorKind::PermissionDenied => {
            "; give this user the folder, or start it as the user who owns it"
        }
        _ => "",
    }
}

/// Exits the process, because nothing may be acknowledged any more.
#[allow(clippy::print_stderr)]
pub(crate) fn exit_on_failure(shared: &Shared, e: &io::Error) -> ! {
    let full = suggest_remedy(e);
    eprintln!(
        "kvstore: the log in {} can't be written and synced: {e}{full}; stopping, so that nothing is acknowledged that is not on disk",
        shared.folder.display()
    );
    std::process::exit(1);
}

/// Returns the path of the segment whose first frame has this sequence number.
pub(crate) fn segment_path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:016x}.wal"))
}

/// Returns the first sequence numbers of all segments, in order.
pub(crate) fn list_segments(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<u64>> {
    let first = |name: String| u64::from_str_radix(name.strip_suffix(".wal")?, 16).ok();
    let mut found: Vec<u64> = disk
        .list_names(folder)?
        .into_iter()
        .filter_map(first)
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// A created segment.
pub(crate) struct CreatedSegment {
    pub file: Arc<dyn DiskFile>,
    /// Size of its head in bytes.
    pub size: u64,
    /// Offset up to which blocks have been written.
    pub written: u64,
}

/// Renames a zeroed segment of an earlier process: it may have been used, if a rename was lost with
/// the power.
pub(crate) fn discard_zeroed_segment(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    let zeroed = folder.join(ZEROED);
    if disk.exists(&zeroed) {
        disk.rename(&zeroed, &folder.join(SPARE))
    } else {
        Ok(())
    }
}

/// Creates the segment that starts with frame `first`, which contains `head`.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    folder: &Path,
    first: u64,
    head: &[Record],
    size: u64,
) -> io::Result<CreatedSegment> {
    let next = folder.join(NEXT);
    let ready = disk.rename(&folder.join(ZEROED), &next).is_ok();
    if !ready {
        // A file of this name is left over from a crash and may contain frames.
        let _ = disk.remove(&next);
    }
    let file = disk.create(&next)?;
    file.allocate(size)?;
    let mut bytes = BytesMut::new();
    frame::encode_frame(&mut bytes, 0, first, head);
    file.write_at(&bytes, 0)?;
    // Head, name, directory, in this order. A crash at any point leaves no named segment without a
    // valid head.
    file.sync_all()?;
    disk.rename(&next, &segment_path(folder, first))?;
    disk.sync_folder(folder)?;
    let head = bytes.len() as u64;
    Ok(CreatedSegment {
        file,
        size: head,
        written: if ready { size } else { head },
    })
}

/// Maintenance of segment files in the background: recycles unused segments and prepares the next
/// one.
///
/// Deleting a file of this size takes milliseconds, and a purge frees many. Without a prepared
/// segment, the next one is written for the first time while requests wait.
pub struct SegmentMaintenance {
    pub(crate) shared: Arc<Shared>,
    pub(crate) size: u64,
}

impl SegmentMaintenance {
    /// Runs the maintenance, unless another thread does, which then handles this request too.
    /// Returns an error if the log's directory can't be changed and synced.
    pub fn run(self) -> io::Result<()> {
        loop {
            // The thread that holds the lock looks at the list again before it returns.
            let Some(alone) = self.shared.maintenance.try_lock() else {
                return Ok(());
            };
            self.release_space()?;
            self.fill_spare();
            drop(alone);
            if self.shared.dead.lock().is_empty() {
                return Ok(());
            }
        }
    }

    /// Recycles unused segments, the oldest first, so that a crash can only leave dead entries at
    /// the start of the log.
    fn release_space(&self) -> io::Result<()> {
        let (disk, folder) = (&*self.shared.disk, &self.shared.folder);
        let mut given = false;
        loop {
            let Some(first) = self.shared.dead.lock().pop_front() else {
                break;
            };
            // One sync of the directory serves all renames.
            recycle_segment(disk, folder, first)?;
            given = true;
        }
        if given {
            disk.sync_folder(folder)
        } else {
            Ok(())
        }
    }

    /// Fills an unused or a new segment with zeros, unless one is prepared.
    fn fill_spare(&self) {
        let (disk, folder) = (&*self.shared.disk, &self.shared.folder);
        let (zeroed, filling) = (folder.join(ZEROED), folder.join(FILLING));
        if disk.exists(&zeroed) {
            return;
        }
        // Under its old name the file is a part of the log. The rename must be durable before its
        // content changes.
        if disk.rename(&folder.join(SPARE), &filling).is_ok() && disk.sync_folder(folder).is_err() {
            return;
        }
        if fill_segment(disk, &filling, self.size)
            .and_then(|()| disk.rename(&filling, &zeroed))
            .is_err()
        {
            // The disk may be full; creating the next segment reports that.
            let _ = disk.remove(&filling);
        }
    }
}

/// Runs the maintenance in a thread of its own. An error exits the process.
pub(crate) fn run_maintenance(upkeep: SegmentMaintenance) {
    let shared = upkeep.shared.clone();
    let work = move || {
        upkeep
            .run()
            .unwrap_or_else(|e| exit_on_failure(&shared, &e))
    };
    // Without the thread, a segment is created when it is needed, and unused ones are recycled next
    // time.
    let _ = std::thread::Builder::new()
        .name("wal upkeep".to_owned())
        .spawn(work);
}

fn fill_segment(disk: &dyn Disk, path: &Path, size: u64) -> io::Result<()> {
    let file = disk.create(path)?;
    file.allocate(size)?;
    zero_range(&*file, 0, file.size()?)?;
    file.sync_all()
}

/// Writes zeros in steps, so that a sync of the log does not wait for all of them.
pub(crate) fn zero_range(file: &dyn DiskFile, mut from: u64, end: u64) -> io::Result<()> {
    // Written, not punched: a block that was written before needs no update of the file system's
    // journal when the log syncs it.
    let zeros = vec![0; FILL_BYTES];
    while from < end {
        let step = (end - from).min(FILL_BYTES as u64);
        file.write_at(zeros.get(..step as usize).unwrap_or_default(), from)?;
        file.sync_data()?;
        from += step;
    }
    Ok(())
}

/// Keeps an unused segment as the spare, or deletes it if there is one.
fn recycle_segment(disk: &dyn Disk, folder: &Path, first: u64) -> io::Result<()> {
    let spare = folder.join(SPARE);
    if disk.exists(&spare) || disk.exists(&folder.join(ZEROED)) {
        return disk.remove(&segment_path(folder, first));
    }
    disk.rename(&segment_path(folder, first), &spare)
}
