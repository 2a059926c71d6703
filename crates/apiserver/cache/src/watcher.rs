//! A client's subscription to a cache.
//!
//! Invariant: a watcher that does not read is closed when its channel is full; it never buffers
//! more than that.

use crate::{CacheEvent, Delivery, Selection, SharedFrames};
use parking_lot::Mutex;
use std::sync::Arc;
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

/// A watcher of one kind.
#[derive(Debug)]
pub(crate) struct Watcher {
    selection: Selection,
    state: Mutex<WatcherState>,
}

#[derive(Debug)]
struct WatcherState {
    /// `None` once the watcher is closed; dropping it ends the stream.
    sender: Option<mpsc::Sender<Delivery>>,
    /// Number of the last event, because an event may find a watcher in two ways.
    last_event: u64,
}

impl Watcher {
    pub(crate) fn new(selection: Selection) -> (Self, mpsc::Receiver<Delivery>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let state = Mutex::new(WatcherState {
            sender: Some(sender),
            last_event: 0,
        });
        (Watcher { selection, state }, receiver)
    }

    /// Returns the selection.
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Returns whether the client still reads.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state
            .sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed())
    }

    /// Sends the event with this number, once; returns false if the watcher is closed or too slow
    /// and must be removed.
    pub(crate) fn deliver(
        &self,
        event: &CacheEvent,
        number: u64,
        frames: &Arc<SharedFrames>,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(sender) = &state.sender else {
            return false;
        };
        if state.last_event == number {
            return true;
        }
        let is_open = match event.seen_by(&self.selection) {
            // `try_send`: waiting for one slow client would stop the updates of all.
            Some(mut delivery) => {
                delivery.frames = Some(frames.clone());
                sender.try_send(delivery).is_ok()
            }
            // Detects clients that disconnected while nothing they watch changed.
            None => !sender.is_closed(),
        };
        state.last_event = number;
        if !is_open {
            state.sender = None;
        }
        is_open
    }
}
