//! A client's subscription to a cache.
//!
//! Invariant: a watcher that does not read is cut off when its channel is full; it never holds more than that.

use crate::{CacheEvent, Entry, EventType, Selection};
use std::sync::Arc;
use tokio::sync::mpsc;

const CAPACITY: usize = 1024;

/// One event for a client.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// ADDED, MODIFIED, DELETED.
    pub event: EventType,
    /// The object.
    pub entry: Arc<Entry>,
}

/// What a client gets first, and then.
pub struct Subscription {
    /// Sent before anything else: present objects, or changes since the start revision.
    pub backlog: Vec<Delivery>,
    /// The revision at which the backlog ends.
    pub revision: i64,
    /// Later changes; closed when the client was too slow or the cache was read anew.
    pub changes: mpsc::Receiver<Delivery>,
}

#[derive(Debug)]
pub(crate) struct Watcher {
    selection: Selection,
    sender: mpsc::Sender<Delivery>,
}

impl Watcher {
    pub(crate) fn new(selection: Selection) -> (Self, mpsc::Receiver<Delivery>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Watcher { selection, sender }, receiver)
    }

    /// False when the watcher is gone or too slow and is to be forgotten.
    pub(crate) fn deliver(&self, event: &CacheEvent) -> bool {
        match event.seen_by(&self.selection) {
            Some((event, entry)) => self.sender.try_send(Delivery { event, entry }).is_ok(),
            None => !self.sender.is_closed(),
        }
    }
}
