//! Public interface of the log.

use crate::disk::{Disk, DiskFile, FileSystem};
use crate::recover::{Contents, RecoveredLog, WalError, read_whole, recover_log};
use crate::shared::{Done, Entry, Place, Shared, State, SyncObserver};
use crate::writer::{Request, Writer};
use crate::{files, frame};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Thread that executes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBy {
    /// The log's own thread.
    Thread,
    /// The caller, which waits for the disk, unless the thread is already writing. Saves two thread
    /// switches.
    Caller,
}

/// An open log. Requests are executed in the order in which they were made.
pub struct Wal {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    writer_handle: Option<WriterHandle>,
}

/// The writer and its thread; absent if the opener of the log drives the writer.
struct WriterHandle {
    writer: Arc<Mutex<Writer>>,
    wake: mpsc::SyncSender<()>,
    thread: JoinHandle<()>,
}

/// Returns the state of a log with these entries, which are at these places.
fn recover_state(contents: &Contents, places: VecDeque<Place>) -> State {
    let mut state = State {
        first: contents.purged.as_ref().map_or(1, |(upto, _)| upto + 1),
        places: VecDeque::new(),
        cache: VecDeque::new(),
        cached_bytes: 0,
        files: HashMap::new(),
    };
    if contents.purged.is_none() && contents.entries.is_empty() {
        state.first = 0;
    }
    for ((index, data), place) in contents.entries.iter().zip(places) {
        state.push(*index, data.clone(), place);
    }
    // Copied, because cached slices would keep whole segments in memory.
    for data in &mut state.cache {
        *data = Bytes::copy_from_slice(data);
    }
    state
}

impl Wal {
    /// Opens or creates the log in a directory and starts the writer thread.
    pub fn open(folder: &Path, observer: SyncObserver) -> Result<(Wal, Contents), WalError> {
        let (mut wal, contents, writer) =
            Wal::open_on(Arc::new(FileSystem), folder, files::SEGMENT_BYTES, observer)?;
        let writer = Arc::new(Mutex::new(writer));
        // Capacity 1: one wake-up is enough for all waiting requests.
        let (wake, woken) = mpsc::sync_channel(1);
        let thread = {
            let writer = writer.clone();
            let work = move || {
                // The loop ends when the log is dropped. Requests sent until then are executed
                // afterwards.
                while let Ok(()) = woken.recv() {
                    writer.lock().drain_queue();
                }
                writer.lock().drain_queue();
            };
            std::thread::Builder::new()
                .name("wal".to_owned())
                .spawn(work)
        };
        let failed = |source| WalError::Io {
            path: folder.to_path_buf(),
            doing: "opened",
            source,
        };
        wal.writer_handle = Some(WriterHandle {
            writer,
            wake,
            thread: thread.map_err(failed)?,
        });
        Ok((wal, contents))
    }

    /// Opens or creates the log on a disk. The caller drives the writer.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        segment_bytes: u64,
        observer: SyncObserver,
    ) -> Result<(Wal, Contents, Writer), WalError> {
        let failed = |source| WalError::Io {
            path: folder.to_path_buf(),
            doing: "opened",
            source,
        };
        disk.make_folder(folder).map_err(failed)?;
        let mut recovered = recover_log(&*disk, folder, &|path| read_whole(&*disk, path))?;
        // Before the first segment is created, which would trust that the prepared one is zeroed.
        files::discard_zeroed_segment(&*disk, folder).map_err(failed)?;
        let last = open_last(&*disk, folder, segment_bytes, &mut recovered).map_err(failed)?;
        let contents = std::mem::take(&mut recovered.contents);
        let state = recover_state(&contents, std::mem::take(&mut recovered.places));
        let shared = Arc::new(Shared {
            disk,
            folder: folder.to_path_buf(),
            state: RwLock::new(state),
            maintenance: Mutex::new(()),
            dead: Mutex::default(),
        });
        let (requests, inbox) = mpsc::channel();
        let writer = Writer {
            shared: shared.clone(),
            inbox,
            segment_bytes,
            file: last,
            segments: recovered.segments,
            sequence: recovered.sequence,
            offset: recovered.offset,
            written: recovered.offset,
            vote: contents.vote.clone(),
            purged: contents.purged.clone(),
            observer,
            due: false,
        };
        Ok((
            Wal {
                shared,
                requests,
                writer_handle: None,
            },
            contents,
            writer,
        ))
    }

    /// Appends entries. An entry with an existing index replaces that one and all later ones. The
    /// entries are readable on return and on disk when `done` is called.
    pub fn append(&self, entries: Vec<Entry>, by: WrittenBy, done: Done) {
        {
            let mut state = self.shared.state.write();
            for (index, data) in &entries {
                // No location yet: the entry is read from memory until the writer sets one.
                state.push(
                    *index,
                    data.clone(),
                    Place {
                        segment: 0,
                        offset: 0,
                        size: 0,
                    },
                );
            }
        }
        self.send_request(Request::Append(entries, done), by);
    }

    /// Replaces the vote.
    pub fn save_vote(&self, vote: Bytes, done: Done) {
        self.send_request(Request::Vote(vote, done), WrittenBy::Thread);
    }

    /// Removes the entries from `from` on.
    pub fn truncate(&self, from: u64, done: Done) {
        self.shared.state.write().truncate(from);
        self.send_request(Request::Truncate(from, done), WrittenBy::Thread);
    }

    /// Removes the entries up to `upto`. `data` is returned as `Contents::purged` by the next open.
    pub fn purge(&self, upto: u64, data: Bytes, done: Done) {
        self.shared.state.write().purge(upto);
        self.send_request(Request::Purge(upto, data, done), WrittenBy::Thread);
    }

    /// Returns first and last index, if there are entries.
    pub fn index_bounds(&self) -> Option<(u64, u64)> {
        let state = self.shared.state.read();
        (!state.places.is_empty()).then(|| (state.first, state.end_index() - 1))
    }

    /// Returns the existing entries of the range, about `limit` bytes at most and at least one
    /// entry.
    pub fn read_entries(&self, range: Range<u64>, limit: usize) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut index = range.start;
        while index < range.end && (found.is_empty() || bytes < limit) {
            let Some(data) = self.read_one(index)? else {
                break;
            };
            bytes += data.len();
            found.push((index, data));
            index += 1;
        }
        Ok(found)
    }

    fn read_one(&self, index: u64) -> io::Result<Option<Bytes>> {
        let (place, file) = {
            let state = self.shared.state.read();
            if index < state.first || index >= state.end_index() {
                return Ok(None);
            }
            let cached_from = state.end_index() - state.cache.len() as u64;
            if index >= cached_from {
                return Ok(state.cache.get((index - cached_from) as usize).cloned());
            }
            let Some(place) = state.places.get((index - state.first) as usize).copied() else {
                return Ok(None);
            };
            (place, state.files.get(&place.segment).cloned())
        };
        let file = match file {
            Some(file) => file,
            None => self.open_segment(place.segment)?,
        };
        let mut bytes = vec![0; place.size as usize];
        file.read_at(&mut bytes, place.offset)?;
        match frame::decode_record(&Bytes::from(bytes)) {
            // The index is compared too: a stale location in a recycled segment would hold another
            // entry.
            Some((frame::Record::Entry(found, data), _)) if found == index => Ok(Some(data)),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the log is corrupt: checksum mismatch in {} at byte {}",
                    files::segment_path(&self.shared.folder, place.segment).display(),
                    place.offset
                ),
            )),
        }
    }

    fn open_segment(&self, segment: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = self
            .shared
            .disk
            .open(&files::segment_path(&self.shared.folder, segment))?;
        self.shared
            .state
            .write()
            .files
            .insert(segment, file.clone());
        Ok(file)
    }

    fn send_request(&self, request: Request, by: WrittenBy) {
        // The writer ends only with the log or the process.
        // Queued before the lock is tried. If the thread has the lock, it finds this request, or
        // the wake-up below finds the thread.
        let _ = self.requests.send(request);
        let Some(writer_handle) = &self.writer_handle else {
            return;
        };
        if by == WrittenBy::Caller
            && let Some(mut writer) = writer_handle.writer.try_lock()
        {
            return writer.drain_queue();
        }
        // If the channel is full, the thread wakes up anyway and sees this request too.
        let _ = writer_handle.wake.try_send(());
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        if let Some(WriterHandle { wake, thread, .. }) = self.writer_handle.take() {
            drop(wake);
            let _ = thread.join();
        }
    }
}

fn open_last(
    disk: &dyn Disk,
    folder: &Path,
    segment_bytes: u64,
    recovered: &mut RecoveredLog,
) -> io::Result<Arc<dyn DiskFile>> {
    let Some(last) = recovered.segments.last() else {
        let made = files::create_segment(disk, folder, recovered.sequence, &[], segment_bytes)?;
        recovered.segments.push(recovered.sequence);
        recovered.sequence += 1;
        recovered.offset = made.size;
        return Ok(made.file);
    };
    let file = disk.open(&files::segment_path(folder, *last))?;
    file.allocate(segment_bytes)?;
    if let Some(end) = recovered.remains {
        // The rest of a removed write could be mistaken for a part of the next one.
        files::zero_range(&*file, recovered.offset, end)?;
    }
    // The content may only be in the page cache, if a process stopped between write and sync. From
    // here on it counts as acknowledged.
    file.sync_all()?;
    disk.sync_folder(folder)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    fn open(folder: &Path) -> Result<(Wal, Contents), WalError> {
        Wal::open(folder, Arc::new(|_| {}))
    }

    fn wait(act: impl FnOnce(Done)) {
        let (sender, receiver) = mpsc::channel();
        act(Box::new(move || sender.send(()).unwrap()));
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    }

    fn entry(index: u64) -> Entry {
        (
            index,
            Bytes::from(format!(
                "entry number {index} {}",
                "x".repeat(index as usize % 40)
            )),
        )
    }

    fn filled(folder: &Path, count: u64) {
        let (wal, _) = open(folder).unwrap();
        for index in 1..=count {
            wait(|done| wal.append(vec![entry(index)], WrittenBy::Thread, done));
        }
        wait(|done| wal.save_vote(Bytes::from_static(b"vote"), done));
    }

    fn segment(folder: &Path) -> PathBuf {
        files::segment_path(
            folder,
            *files::list_segments(&FileSystem, folder)
                .unwrap()
                .last()
                .unwrap(),
        )
    }

    fn find(bytes: &[u8], text: &[u8]) -> usize {
        bytes
            .windows(text.len())
            .rposition(|window| window == text)
            .unwrap()
    }

    #[test]
    fn entries_vote_and_purge_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path(), 50);
        let (wal, contents) = open(folder.path()).unwrap();
        assert_eq!(contents.vote.as_deref(), Some(&b"vote"[..]));
        assert_eq!(
            contents.entries,
            (1..=50).map(entry).collect::<VecDeque<_>>()
        );
        wait(|done| wal.truncate(40, done));
        wait(|done| wal.append(vec![entry(40), entry(41)], WrittenBy::Thread, done));
        wait(|done| wal.purge(10, Bytes::from_static(b"ten"), done));
        assert_eq!(wal.index_bounds(), Some((11, 41)));
        drop(wal);
        let (wal, contents) = open(folder.path()).unwrap();
        assert_eq!(contents.purged, Some((10, Bytes::from_static(b"ten"))));
        assert_eq!(
            contents.entries,
            (11..=41).map(entry).collect::<VecDeque<_>>()
        );
        assert_eq!(
            wal.read_entries(12..14, usize::MAX).unwrap(),
            [entry(12), entry(13)]
        );
        assert_eq!(wal.read_entries(12..14, 1).unwrap(), [entry(12)]);
    }

    #[test]
    fn callers_and_the_thread_share_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let (wal, _) = open(folder.path()).unwrap();
        let acknowledged = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        for index in 1..=200 {
            let acknowledged = acknowledged.clone();
            // If the thread is still writing, it executes the caller's request too.
            let by = if index % 3 == 0 {
                WrittenBy::Thread
            } else {
                WrittenBy::Caller
            };
            wal.append(
                vec![entry(index)],
                by,
                Box::new(move || {
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }),
            );
        }
        wait(|done| wal.save_vote(Bytes::from_static(b"vote"), done));
        assert_eq!(acknowledged.load(Ordering::SeqCst), 200);
        wal.append(
            vec![entry(201)],
            WrittenBy::Caller,
            Box::new(move || {
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }),
        );
        drop(wal);
        assert_eq!(
            open(folder.path()).unwrap().1.entries,
            (1..=201).map(entry).collect::<VecDeque<_>>()
        );
    }

    #[test]
    fn purged_segments_are_recycled() {
        let folder = tempfile::tempdir().unwrap();
        let big = Bytes::from(vec![7; 3 << 20]);
        let (wal, _) = open(folder.path()).unwrap();
        wait(|done| wal.save_vote(Bytes::from_static(b"vote"), done));
        for index in 1..=20 {
            wait(|done| wal.append(vec![(index, big.clone())], WrittenBy::Thread, done));
        }
        assert!(
            files::list_segments(&FileSystem, folder.path())
                .unwrap()
                .len()
                > 2
        );
        assert_eq!(
            wal.read_entries(1..3, usize::MAX).unwrap(),
            [(1, big.clone()), (2, big.clone())]
        );
        wait(|done| wal.purge(19, Bytes::from_static(b"p"), done));
        // They are recycled in the background.
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while files::list_segments(&FileSystem, folder.path())
            .unwrap()
            .len()
            > 1
        {
            assert!(
                std::time::Instant::now() < end,
                "the segments are still there"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(wal);
        let (_, contents) = open(folder.path()).unwrap();
        assert_eq!(contents.vote.as_deref(), Some(&b"vote"[..]));
        assert_eq!(contents.entries, [(20, big)]);
    }

    #[test]
    fn torn_last_write_is_removed_and_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path(), 20);
        let (wal, _) = open(folder.path()).unwrap();
        wait(|done| wal.append(vec![entry(21)], WrittenBy::Thread, done));
        drop(wal);
        let path = segment(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(find(&bytes, b"entry number 21") + 8);
        std::fs::write(&path, bytes).unwrap();
        let (wal, contents) = open(folder.path()).unwrap();
        assert!(contents.torn.is_some());
        assert_eq!(
            contents.entries,
            (1..=20).map(entry).collect::<VecDeque<_>>()
        );
        wait(|done| wal.append(vec![entry(21)], WrittenBy::Thread, done));
        drop(wal);
        assert_eq!(open(folder.path()).unwrap().1.entries.len(), 21);
    }

    #[test]
    fn damaged_entry_is_rejected_with_the_name_of_its_segment() {
        let folder = tempfile::tempdir().unwrap();
        filled(folder.path(), 20);
        let path = segment(folder.path());
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = find(&bytes, b"entry number 10 ");
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let Err(error) = open(folder.path()) else {
            panic!("served")
        };
        assert!(
            error.to_string().contains("checksum mismatch in"),
            "{error}"
        );
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}
