//! One change of a cache, and what a client receives of it.

use crate::Entry;
use crate::selection::Selection;
use bytes::Bytes;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// New to the watcher.
    Added,
    /// Known and changed.
    Modified,
    /// Deleted, or no longer selected.
    Deleted,
}

impl EventType {
    /// Returns the type's name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// Frame formats of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFormat {
    /// JSON.
    Json,
    /// Protobuf.
    Proto,
    /// A sequence of CBOR items.
    Cbor,
}

/// The frames of one event in the storage version. All watchers that receive the event share them;
/// they are dropped with the last delivery, because an object keeps its encodings itself.
#[derive(Debug, Default)]
pub struct SharedFrames {
    // By the event's type: it may be ADDED to one watcher and MODIFIED to another.
    json: [OnceLock<Bytes>; 3],
    proto: [OnceLock<Bytes>; 3],
    cbor: [OnceLock<Bytes>; 3],
}

impl SharedFrames {
    /// Returns the frame of an event; the first caller encodes it.
    ///
    /// # Errors
    /// The frame can't be encoded.
    pub fn get_or_encode<E>(
        &self,
        event: EventType,
        format: FrameFormat,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let frames = match format {
            FrameFormat::Json => &self.json,
            FrameFormat::Proto => &self.proto,
            FrameFormat::Cbor => &self.cbor,
        };
        let [added, modified, deleted] = frames;
        let frame = match event {
            EventType::Added => added,
            EventType::Modified => modified,
            EventType::Deleted => deleted,
        };
        if let Some(bytes) = frame.get() {
            return Ok(bytes.clone());
        }
        let bytes = encode()?;
        Ok(frame.get_or_init(|| bytes).clone())
    }
}

/// One event for a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// ADDED, MODIFIED, DELETED.
    pub event: EventType,
    /// The object.
    pub entry: Arc<Entry>,
    /// State before, if [`Selection::converted_fields`] decides what a change is to the client.
    pub previous: Option<Arc<Entry>>,
    /// Shared with the other watchers; `None` if the event is for one watcher only.
    pub frames: Option<Arc<SharedFrames>>,
}

impl Delivery {
    /// Creates an event about an existing object.
    pub(crate) fn existing(entry: Arc<Entry>) -> Self {
        Delivery {
            event: EventType::Added,
            entry,
            previous: None,
            frames: None,
        }
    }

    /// Applies the selection to converted objects; returns the event that the client receives, if
    /// any.
    pub fn select_converted(self, selection: &Selection) -> Option<Delivery> {
        if selection.converted_fields.is_empty() {
            return Some(self);
        }
        let is_selected = |entry: &Arc<Entry>| selection.matches_converted(entry);
        let revision = self.entry.revision;
        let after = Some(self.entry).filter(is_selected);
        let before = self.previous.filter(is_selected);
        let (event, entry) = match (before, after) {
            (None, None) => return None,
            (None, Some(new)) if self.event == EventType::Modified => (EventType::Added, new),
            (_, Some(entry)) => (self.event, entry),
            // As for other selectors: the last matching state with the revision of the change.
            (Some(old), None) => (EventType::Deleted, Arc::new(old.at_revision(revision))),
        };
        Some(Delivery {
            event,
            entry,
            previous: None,
            frames: None,
        })
    }
}

/// A change with the states before and after.
#[derive(Debug)]
pub struct CacheEvent {
    /// The revision of the change.
    pub revision: i64,
    /// State before; `None` for a new object.
    pub old: Option<Arc<Entry>>,
    /// State after; `None` if it was deleted.
    pub new: Option<Arc<Entry>>,
    pub(crate) at: Instant,
    /// The state before with this event's revision, for DELETED.
    deleted: OnceLock<Arc<Entry>>,
}

impl CacheEvent {
    pub(crate) fn new(revision: i64, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) -> Self {
        CacheEvent {
            revision,
            old,
            new,
            at: Instant::now(),
            deleted: OnceLock::new(),
        }
    }

    /// Returns the same event with other copies of its states.
    pub(crate) fn with_states(&self, old: Option<Arc<Entry>>, new: Option<Arc<Entry>>) -> Self {
        CacheEvent {
            at: self.at,
            ..CacheEvent::new(self.revision, old, new)
        }
    }

    /// Returns the object's key.
    pub fn key(&self) -> &str {
        self.new
            .as_ref()
            .or(self.old.as_ref())
            .map_or("", |e| &*e.key)
    }

    /// Returns the event that a watcher with this selection receives, if any.
    pub fn seen_by(&self, selection: &Selection) -> Option<Delivery> {
        let before = self.old.as_ref().filter(|e| selection.matches(e));
        let after = self.new.as_ref().filter(|e| selection.matches(e));
        let (event, entry) = match (before, after) {
            (None, None) => return None,
            (None, Some(new)) => (EventType::Added, new.clone()),
            (Some(_), Some(new)) => (EventType::Modified, new.clone()),
            // To a watch with a selector, an object that no longer matches is deleted. As upstream,
            // the event has the last matching state with the revision of the change.
            (Some(old), None) => (EventType::Deleted, self.deleted_entry(old)),
        };
        let is_needed = event == EventType::Modified && !selection.converted_fields.is_empty();
        Some(Delivery {
            event,
            entry,
            previous: before.filter(|_| is_needed).cloned(),
            frames: None,
        })
    }

    fn deleted_entry(&self, old: &Entry) -> Arc<Entry> {
        // All watchers share one copy: a label change may remove an object from thousands of
        // watches.
        self.deleted
            .get_or_init(|| Arc::new(old.at_revision(self.revision)))
            .clone()
    }
}
