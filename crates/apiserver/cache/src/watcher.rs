//! A client's subscription to a cache.
//!
//! Invariant: a watcher that does not read is closed when its channel is full; it never buffers
//! more than that.

use crate::{CacheEvent, Delivery, Selection};
use tokio::sync::mpsc;

// Upstream's queues hold 10 to 1,000 events, and its dispatcher waits briefly for slow watchers.
// Here nothing waits, so that the queue is longer.
const CAPACITY: usize = 1024;

/// A subscription: the backlog, then live changes.
pub struct Subscription {
    /// Sent first: existing objects, or changes since the start revision.
    pub backlog: Vec<Delivery>,
    /// The revision at which the backlog ends.
    pub revision: i64,
    /// Later changes; closed if the client was too slow or the cache was relisted.
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

    /// Sends an event; returns false if the watcher is closed or too slow and must be removed.
    pub(crate) fn deliver(&self, event: &CacheEvent) -> bool {
        match event.seen_by(&self.selection) {
            // `try_send`: waiting for one slow client would stop the updates of all.
            Some(delivery) => self.sender.try_send(delivery).is_ok(),
            // Detects clients that disconnected while nothing they watch changed.
            None => !self.sender.is_closed(),
        }
    }
}
