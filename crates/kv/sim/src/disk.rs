//! A disk that keeps synced data. A loss of power loses unsynced data, completely or by sectors. A
//! killed process leaves everything, still unsynced.

use crate::entropy::Rng;
use kv_wal::{Disk, DiskFile};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
struct Inode {
    /// Content that readers see.
    content: Vec<u8>,
    /// Content that survives a loss of power.
    durable: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Put(PathBuf, u64),
    Move(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Debug)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    /// In the order of a file system's journal.
    name_changes: Vec<NameChange>,
    next: u64,
    rng: Rng,
    full: bool,
    fail_sync: bool,
    /// Number of operations until the process stops in the middle of one.
    fuse: Option<u64>,
    stopped: bool,
}

/// A member's disk. It outlives the member's process.
#[derive(Clone, Debug)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
}

fn write_into(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Splits a write at sector boundaries: each part becomes durable completely or not at all.
fn split_sectors(at: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (first, rest) = bytes.split_at(bytes.len().min((SECTOR - at % SECTOR) % SECTOR));
    let begun = at + first.len();
    let whole = rest
        .chunks(SECTOR)
        .enumerate()
        .map(move |(number, sector)| (begun + number * SECTOR, sector));
    std::iter::once((at, first))
        .filter(|(_, first)| !first.is_empty())
        .chain(whole)
}

fn change_name(names: &mut BTreeMap<PathBuf, u64>, change: &NameChange) {
    match change {
        NameChange::Put(path, inode) => drop(names.insert(path.clone(), *inode)),
        NameChange::Move(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        NameChange::Remove(path) => drop(names.remove(path)),
    }
}

fn missing_error() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl State {
    /// Counts an operation. Returns an error if the process has stopped.
    fn check_running(&mut self) -> io::Result<()> {
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            if *fuse == 0 {
                self.stopped = true;
            }
        }
        if self.stopped {
            Err(io::Error::other("the process has stopped"))
        } else {
            Ok(())
        }
    }

    fn name(&mut self, change: NameChange) {
        change_name(&mut self.names, &change);
        self.name_changes.push(change);
    }

    fn sync(&mut self, inode: u64) -> io::Result<()> {
        self.check_running()?;
        let Some(inode) = self.inodes.get_mut(&inode) else {
            return Err(missing_error());
        };
        if std::mem::take(&mut self.fail_sync) {
            // The kernel drops the pages after a failed sync.
            inode.unsynced.clear();
            inode.content.clone_from(&inode.durable);
            self.stopped = true;
            return Err(io::Error::other("input/output error"));
        }
        for (at, bytes) in inode.unsynced.drain(..) {
            write_into(&mut inode.durable, at, &bytes);
        }
        let length = inode.content.len();
        if inode.durable.len() < length {
            inode.durable.resize(length, 0);
        }
        Ok(())
    }
}

impl SimDisk {
    pub fn new(rng: Rng) -> Self {
        SimDisk(Arc::new(Mutex::new(State {
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            next: 1,
            rng,
            full: false,
            fail_sync: false,
            fuse: None,
            stopped: false,
        })))
    }

    /// Prepares the disk for a new process.
    pub fn start(&self) {
        self.cancel_failures();
        self.0.lock().stopped = false;
    }

    /// Cancels pending failures.
    pub fn cancel_failures(&self) {
        let mut state = self.0.lock();
        (state.fuse, state.fail_sync) = (None, false);
    }

    /// Stops the process in the middle of an operation, after this number of operations.
    pub fn light_fuse(&self, operations: u64) {
        self.0.lock().fuse = Some(operations);
    }

    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    pub fn fail_next_sync(&self) {
        self.0.lock().fail_sync = true;
    }

    /// Simulates a loss of power: unsynced data survive at random.
    pub fn lose_power(&self) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let keep = state.rng.below(state.name_changes.len() as u64 + 1);
        for change in state
            .name_changes
            .drain(..)
            .take(usize::try_from(keep).unwrap_or(0))
        {
            change_name(&mut state.durable_names, &change);
        }
        state.names.clone_from(&state.durable_names);
        for inode in state.inodes.values_mut() {
            let chance = state.rng.below(4);
            for (at, bytes) in inode.unsynced.drain(..) {
                for (at, sector) in split_sectors(at, &bytes) {
                    // No sectors, all, or a random selection.
                    if chance == 1 || chance > 1 && state.rng.once_in(2) {
                        write_into(&mut inode.durable, at, sector);
                    }
                }
            }
            inode.content.clone_from(&inode.durable);
        }
        let named: Vec<u64> = state.names.values().copied().collect();
        state.inodes.retain(|inode, _| named.contains(inode));
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.0.lock();
        state.check_running()?;
        Ok(state
            .inodes
            .get(&self.inode)
            .ok_or_else(missing_error)?
            .content
            .len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.check_running()?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let content = &state
            .inodes
            .get(&self.inode)
            .ok_or_else(missing_error)?
            .content;
        let found = at
            .checked_add(bytes.len())
            .and_then(|end| content.get(at..end));
        bytes.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut guard = self.disk.0.lock();
        let state = &mut *guard;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let alive = state.check_running();
        let part = if alive.is_ok() {
            bytes.len() as u64
        } else {
            state.rng.below(bytes.len() as u64 + 1)
        };
        // The kernel accepts whole pages only.
        let whole = |part: usize| {
            if part < bytes.len() {
                part.saturating_sub((at + part) % SECTOR)
            } else {
                part
            }
        };
        let bytes = &bytes[..whole(usize::try_from(part).unwrap_or(0))];
        let inode = state
            .inodes
            .get_mut(&self.inode)
            .ok_or_else(missing_error)?;
        if state.full && at + bytes.len() > inode.content.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        write_into(&mut inode.content, at, bytes);
        inode.unsynced.push((at, bytes.to_vec()));
        alive
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        state.check_running()?;
        let full = state.full;
        let inode = state
            .inodes
            .get_mut(&self.inode)
            .ok_or_else(missing_error)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if inode.content.len() < size {
            if full {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            inode.content.resize(size, 0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.0.lock().sync(self.inode)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Disk for SimDisk {
    fn make_folder(&self, _: &Path) -> io::Result<()> {
        self.0.lock().check_running()
    }

    fn list_names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut state = self.0.lock();
        state.check_running()?;
        let inside = state
            .names
            .keys()
            .filter(|path| path.parent() == Some(folder));
        Ok(inside
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.lock();
        state.check_running()?;
        let inode = *state.names.get(path).ok_or_else(missing_error)?;
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if self.exists(path) {
            return self.open(path);
        }
        let mut state = self.0.lock();
        state.check_running()?;
        if state.full {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let inode = state.next;
        state.next += 1;
        state.inodes.insert(inode, Inode::default());
        state.name(NameChange::Put(path.to_path_buf(), inode));
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check_running()?;
        if !state.names.contains_key(from) {
            return Err(missing_error());
        }
        state.name(NameChange::Move(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        state.check_running()?;
        if !state.names.contains_key(path) {
            return Err(missing_error());
        }
        state.name(NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.lock().names.contains_key(path)
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut guard = self.0.lock();
        guard.check_running()?;
        let state = &mut *guard;
        for change in state.name_changes.drain(..) {
            change_name(&mut state.durable_names, &change);
        }
        Ok(())
    }
}

impl SimDisk {
    /// Returns whether the disk justifies the end of a process.
    pub fn at_fault(&self) -> bool {
        let state = self.0.lock();
        state.stopped || state.full
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;
    use kv_wal::{Contents, Wal, Writer, WrittenBy};

    fn open(disk: &SimDisk) -> (Wal, Contents, Writer) {
        disk.start();
        Wal::open_on(
            Arc::new(disk.clone()),
            Path::new("/wal"),
            4_096,
            Arc::new(|_| {}),
        )
        .unwrap()
    }

    /// A process that is killed between write and sync leaves a frame that the next one reads and
    /// acknowledges.
    #[test]
    fn content_at_open_survives_a_loss_of_power() {
        for seed in 0..50 {
            let disk = SimDisk::new(Rng::new(seed));
            let (wal, _, mut writer) = open(&disk);
            wal.append(
                vec![(1, Bytes::from_static(b"one"))],
                WrittenBy::Thread,
                Box::new(|| {}),
            );
            let mut frame = writer.next_frame().unwrap();
            writer.write_frame(&mut frame).unwrap();
            drop((wal, writer, frame));
            let (_, read, _) = open(&disk);
            disk.lose_power();
            assert_eq!(open(&disk).1.entries, read.entries, "seed {seed}");
        }
    }
}
