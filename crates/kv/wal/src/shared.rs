//! State that the log and its writer thread share.

use crate::disk::{Disk, DiskFile};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Called when a request is on disk.
pub type Done = Box<dyn FnOnce() + Send>;

/// Called with the duration of each sync.
pub type SyncObserver = Arc<dyn Fn(Duration) + Send + Sync>;

/// Index and data of an entry.
pub type Entry = (u64, Bytes);

/// Size in bytes of the cache of entries, so that apply and replication don't read the disk.
pub(crate) const CACHE_BYTES: usize = 4 << 20;

/// State shared by readers and the writer.
pub(crate) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub folder: PathBuf,
    pub state: RwLock<State>,
    /// Held during maintenance.
    pub maintenance: Mutex<()>,
    /// Segments without needed entries that still exist, the oldest first.
    pub dead: Mutex<VecDeque<u64>>,
}

/// Entries from index `first` on; the newest are also in memory.
pub(crate) struct State {
    pub first: u64,
    pub places: VecDeque<Place>,
    pub cache: VecDeque<Bytes>,
    pub cached_bytes: usize,
    pub files: HashMap<u64, Arc<dyn DiskFile>>,
}

impl State {
    /// Returns the index after the last entry.
    pub fn end_index(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    pub fn push(&mut self, index: u64, data: Bytes, place: Place) {
        // Raft replaces conflicting entries: an entry with a known index invalidates all later
        // ones.
        self.truncate(index);
        // A gap: the entries in between came as a snapshot.
        if self.end_index() != index {
            self.places.clear();
            self.cache.clear();
            self.cached_bytes = 0;
            self.first = index;
        }
        self.places.push_back(place);
        self.cached_bytes += data.len();
        self.cache.push_back(data);
        self.shrink_cache();
    }

    fn shrink_cache(&mut self) {
        while self.cached_bytes > CACHE_BYTES && self.oldest_cached_is_placed() {
            if let Some(data) = self.cache.pop_front() {
                self.cached_bytes -= data.len();
            }
        }
    }

    /// Returns whether the oldest cached entry has a location. Entries without one can only be read
    /// from memory.
    fn oldest_cached_is_placed(&self) -> bool {
        let at = self.places.len() - self.cache.len();
        self.places.get(at).is_some_and(|place| place.segment != 0)
    }

    pub fn truncate(&mut self, from: u64) {
        while self.end_index() > from && self.places.pop_back().is_some() {
            if let Some(data) = self.cache.pop_back() {
                self.cached_bytes -= data.len();
            }
        }
    }

    pub fn purge(&mut self, upto: u64) {
        while self.first <= upto && self.places.pop_front().is_some() {
            if self.cache.len() > self.places.len()
                && let Some(data) = self.cache.pop_front()
            {
                self.cached_bytes -= data.len();
            }
            self.first += 1;
        }
        if self.places.is_empty() {
            self.first = self.first.max(upto + 1);
        }
    }
}

/// Location of an entry's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub segment: u64,
    pub offset: u64,
    pub size: u32,
}
