//! Segment files: names, creation, recycling.
//!
//! A segment gets its name only when its head is on disk, so a named segment always begins with a valid frame. Behind its
//! frames a segment is full of zeros, which is how a torn frame is known. One that was in use is filled with zeros on the
//! side before it is used again. Zeroing a range by `fallocate` would be quicker, but makes blocks count as never written,
//! and then each sync of a new one waits for the file system's journal.

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, Record};
use crate::wal::Shared;
use bytes::BytesMut;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size to which a segment is preallocated, and at which the next one begins.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;
/// A segment that is used no more. Earlier versions begin the next one in it as it is.
const SPARE: &str = "spare.tmp";
/// A segment full of zeros.
const ZEROED: &str = "zeroed.tmp";
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

/// Nothing may be acknowledged any more.
#[allow(clippy::print_stderr)]
pub(crate) fn fail(shared: &Shared, e: &io::Error) -> ! {
    let full = remedy(e);
    eprintln!(
        "kvstore: the log in {} can't be written and synced: {e}{full}; stopping, so that nothing is acknowledged that is not on disk",
        shared.folder.display()
    );
    std::process::exit(1);
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

/// A segment that an earlier process made ready may have been begun, by a renaming that was lost with the power.
pub(crate) fn distrust(disk: &dyn Disk, folder: &Path) -> io::Result<()> {
    let zeroed = folder.join(ZEROED);
    if disk.exists(&zeroed) { disk.rename(&zeroed, &folder.join(SPARE)) } else { Ok(()) }
}

/// Makes the segment that begins with frame `first`, which holds `head`.
pub(crate) fn create(disk: &dyn Disk, folder: &Path, first: u64, head: &[Record], size: u64) -> io::Result<Made> {
    let next = folder.join(NEXT);
    let ready = disk.rename(&folder.join(ZEROED), &next).is_ok();
    if !ready {
        let _ = disk.remove(&next);
    }
    let file = disk.create(&next)?;
    file.allocate(size)?;
    let mut bytes = BytesMut::new();
    frame::encode(&mut bytes, 0, first, head);
    file.write_at(&bytes, 0)?;
    file.sync_all()?;
    disk.rename(&next, &path(folder, first))?;
    disk.sync_folder(folder)?;
    let head = bytes.len() as u64;
    Ok(Made { file, size: head, written: if ready { size } else { head } })
}

/// What is done beside whatever else goes on: segments that are used no more are given back, and the next one is made ready.
///
/// Removing a file of this size takes milliseconds, and a purge frees many. Without a segment that is ready, the next one is
/// written for the first time while others wait.
pub struct Upkeep {
    pub(crate) shared: Arc<Shared>,
    pub(crate) size: u64,
}

impl Upkeep {
    /// Does it, unless somebody else does, who then finds this too. Fails if the log's folder can't be changed and synced.
    pub fn run(self) -> io::Result<()> {
        loop {
            let Some(alone) = self.shared.upkeep.try_lock() else { return Ok(()) };
            self.give_back()?;
            self.fill_spare();
            drop(alone);
            if self.shared.dead.lock().is_empty() {
                return Ok(());
            }
        }
    }

    /// Gives free segments back, the oldest first: what a crash leaves is a log with dead entries at its beginning.
    fn give_back(&self) -> io::Result<()> {
        let (disk, folder) = (&*self.shared.disk, &self.shared.folder);
        let mut given = false;
        loop {
            let Some(first) = self.shared.dead.lock().pop_front() else { break };
            recycle(disk, folder, first)?;
            given = true;
        }
        if given { disk.sync_folder(folder) } else { Ok(()) }
    }

    /// Fills a segment that is used no more, or a new one, with zeros, unless one is ready.
    fn fill_spare(&self) {
        let (disk, folder) = (&*self.shared.disk, &self.shared.folder);
        let (zeroed, filling) = (folder.join(ZEROED), folder.join(FILLING));
        if disk.exists(&zeroed) {
            return;
        }
        // Under its old name it is a part of the log: that has to be gone for good before anything in it is changed.
        if disk.rename(&folder.join(SPARE), &filling).is_ok() && disk.sync_folder(folder).is_err() {
            return;
        }
        if fill(disk, &filling, self.size).and_then(|()| disk.rename(&filling, &zeroed)).is_err() {
            // No space, perhaps; whoever needs the segment will say so.
            let _ = disk.remove(&filling);
        }
    }
}

/// Does it in a thread of its own. A failure ends the process.
pub(crate) fn aside(upkeep: Upkeep) {
    let shared = upkeep.shared.clone();
    let work = move || upkeep.run().unwrap_or_else(|e| fail(&shared, &e));
    // A segment that is not ready is made when it is needed; what is not given back now is with the next.
    let _ = std::thread::Builder::new().name("wal upkeep".to_owned()).spawn(work);
}

fn fill(disk: &dyn Disk, path: &Path, size: u64) -> io::Result<()> {
    let file = disk.create(path)?;
    file.allocate(size)?;
    zero(&*file, 0, file.size()?)?;
    file.sync_all()
}

/// Writes zeros, in steps, so that a sync of the log does not wait for all of them.
pub(crate) fn zero(file: &dyn DiskFile, mut from: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; FILL_BYTES];
    while from < end {
        let step = (end - from).min(FILL_BYTES as u64);
        file.write_at(zeros.get(..step as usize).unwrap_or_default(), from)?;
        file.sync_data()?;
        from += step;
    }
    Ok(())
}

/// Gives a segment's space to a next one, or back to the file system.
fn recycle(disk: &dyn Disk, folder: &Path, first: u64) -> io::Result<()> {
    let spare = folder.join(SPARE);
    if disk.exists(&spare) || disk.exists(&folder.join(ZEROED)) {
        return disk.remove(&path(folder, first));
    }
    disk.rename(&path(folder, first), &spare)
}
