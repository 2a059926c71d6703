//! Watches: one hub sends the newest revisions to all streams; a stream that can't keep up reads
//! history by itself.
//!
//! A watcher is either synced (the hub sends it new events) or unsynced (its stream reads history
//! in batches and then joins the hub). The hub never waits for a stream.

use crate::history::{Event, RevisionEvents};
use crate::span::Span;
use crate::store::Store;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// Number of revisions per read of history.
const BATCH: usize = 1_000;
/// Maximum number of queued deliveries of a stream before its watchers become unsynced (etcd's
/// victims).
const MAX_WAITING: usize = 4_096;
/// Size in bytes of events that counts as one delivery, so that queues are bounded in bytes too.
const BYTES: usize = 4 << 10;

/// Events that a watcher does not receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// Excludes puts.
    pub no_put: bool,
    /// Excludes deletions.
    pub no_delete: bool,
}

impl WatchFilter {
    /// Returns whether the watcher receives an event.
    pub fn allows_event(self, event: &Event) -> bool {
        if event.mark.is_tombstone() {
            !self.no_delete
        } else {
            !self.no_put
        }
    }
}

/// Identity of a watcher in the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherKey {
    /// ID of the stream.
    pub stream: u64,
    /// Watch ID in the stream.
    pub watch: i64,
}

/// Keys and filter of a watcher.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// First key.
    pub key: Bytes,
    /// End of the range, as in requests.
    pub end: Bytes,
    /// Excluded events.
    pub filter: WatchFilter,
}

impl Watcher {
    /// Returns the events of a revision that the watcher receives.
    pub fn select_events(&self, events: &RevisionEvents) -> Vec<Arc<Event>> {
        let span = Span::new(&self.key, &self.end);
        events
            .iter()
            .filter(|event| span.contains(&event.kv.key) && self.filter.allows_event(event))
            .cloned()
            .collect()
    }
}

/// Message from the hub to a stream.
#[derive(Debug)]
pub enum HubMessage {
    /// Events of one revision for all these watchers.
    Events {
        /// Watch IDs in the stream.
        watches: Vec<i64>,
        /// The main revision.
        revision: i64,
        /// The events.
        events: Arc<[Arc<Event>]>,
    },
    /// The watcher has become unsynced. It has received everything before this revision.
    Unsynced {
        /// Watch ID in the stream.
        watch: i64,
        /// Revision at which to continue.
        from: i64,
    },
}

impl HubMessage {
    /// Weight of this message against the stream's send-queue limit.
    fn queue_weight(&self) -> usize {
        match self {
            HubMessage::Events {
                watches, events, ..
            } => events_weight(watches, events),
            HubMessage::Unsynced { .. } => 1,
        }
    }
}

fn events_weight(watches: &[i64], events: &[Arc<Event>]) -> usize {
    watches.len() + events.iter().map(|event| event.record.len()).sum::<usize>() / BYTES
}

struct Stream {
    sender: mpsc::UnboundedSender<HubMessage>,
    waiting: Arc<AtomicUsize>,
    /// Number of watchers of the stream, synced or not.
    watchers: Arc<AtomicUsize>,
}

/// Watchers of the same keys.
#[derive(Default)]
struct Group {
    members: BTreeMap<WatcherKey, WatchFilter>,
}

type Ranges = BTreeMap<(Bytes, Bytes), Group>;

/// Returns the groups whose keys include that of an event.
fn matching_groups<'a>(
    keys: &'a HashMap<Bytes, Group>,
    ranges: &'a Ranges,
    event: &'a Event,
) -> impl Iterator<Item = &'a Group> {
    // Ranges that start at the key itself count too, whatever their end: the bound is the first key
    // after it.
    let after = Bytes::from([event.kv.key.as_ref(), &[0]].concat());
    let below = ranges.range(..(after, Bytes::new()));
    let covering = below.filter(|((from, end), _)| Span::new(from, end).contains(&event.kv.key));
    keys.get(&event.kv.key)
        .into_iter()
        .chain(covering.map(|(_, group)| group))
}

#[derive(Default)]
struct Shared {
    streams: HashMap<u64, Stream>,
    /// Groups of a single key.
    keys: HashMap<Bytes, Group>,
    /// Groups of a range.
    ranges: Ranges,
    places: HashMap<WatcherKey, (Bytes, Bytes)>,
    /// Revision up to which everything has been sent.
    sent: i64,
    next_stream: u64,
    /// Number of events sent since the start.
    events: u64,
}

/// Sizes for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct HubSizes {
    /// Number of streams.
    pub streams: usize,
    /// Number of synced watchers.
    pub synced: usize,
    /// Number of unsynced watchers.
    pub unsynced: usize,
    /// Number of queued deliveries.
    pub waiting: usize,
    /// Number of deliveries since the start.
    pub sent: u64,
}

/// Sends new revisions to streams.
pub struct Hub {
    store: Arc<Store>,
    shared: Mutex<Shared>,
    synced: Notify,
}

/// A stream's connection to the hub. Dropping it removes its watchers.
pub struct HubHandle {
    hub: Arc<Hub>,
    stream: u64,
    receiver: mpsc::UnboundedReceiver<HubMessage>,
    waiting: Arc<AtomicUsize>,
    watchers: Arc<AtomicUsize>,
}

impl Hub {
    /// Creates a hub that starts after the current revision.
    pub fn new(store: Arc<Store>) -> Arc<Hub> {
        let shared = Shared {
            sent: store.current_revision(),
            ..Shared::default()
        };
        Arc::new(Hub {
            store,
            shared: Mutex::new(shared),
            synced: Notify::new(),
        })
    }

    /// Sends new revisions until the store is dropped.
    pub async fn run(&self) {
        let mut revisions = self.store.subscribe_revisions();
        loop {
            if !self.send_new() {
                // Without watchers, a wake-up per revision would be wasted.
                self.synced.notified().await;
            } else if revisions.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns sizes for metrics.
    pub fn sizes(&self) -> HubSizes {
        let shared = self.shared.lock();
        let sum = |count: fn(&Stream) -> &AtomicUsize| -> usize {
            shared
                .streams
                .values()
                .map(|stream| count(stream).load(Ordering::Relaxed))
                .sum()
        };
        let synced = shared.places.len();
        HubSizes {
            streams: shared.streams.len(),
            synced,
            unsynced: sum(|stream| &stream.watchers).saturating_sub(synced),
            waiting: sum(|stream| &stream.waiting),
            sent: shared.events,
        }
    }

    /// Connects a new stream.
    pub fn connect_stream(self: &Arc<Self>) -> HubHandle {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (waiting, watchers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut shared = self.shared.lock();
        shared.next_stream += 1;
        let stream = shared.next_stream;
        shared.streams.insert(
            stream,
            Stream {
                sender,
                waiting: waiting.clone(),
                watchers: watchers.clone(),
            },
        );
        HubHandle {
            hub: self.clone(),
            stream,
            receiver,
            waiting,
            watchers,
        }
    }

    /// Sends all new revisions. Returns false if there are no synced watchers.
    fn send_new(&self) -> bool {
        loop {
            // Released after each batch of history, so that streams can join and leave meanwhile.
            let mut shared = self.shared.lock();
            if shared.places.is_empty() {
                return false;
            }
            let from = shared.sent + 1;
            let Ok((revisions, _)) = self.store.read_history(from, BATCH) else {
                // The state was replaced by a snapshot, or the revisions were compacted before they
                // were sent: all watchers read history.
                let present = self.store.current_revision();
                shared.unsync_all();
                shared.sent = present;
                return true;
            };
            // The lock is still held, so a watcher that joins next starts exactly here.
            if revisions.is_empty() {
                return true;
            }
            for events in &revisions {
                shared.send_revision(events);
            }
        }
    }
}

impl Shared {
    fn send_revision(&mut self, events: &RevisionEvents) {
        let Some(revision) = events.first().map(|event| event.mark.main()) else {
            return;
        };
        self.sent = revision;
        // The common case is one event: all its watchers receive the same one, in one message per
        // stream.
        if let [event] = events.as_ref() {
            let mut recipients: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
            for group in matching_groups(&self.keys, &self.ranges, event) {
                for (key, _) in group
                    .members
                    .iter()
                    .filter(|(_, filter)| filter.allows_event(event))
                {
                    recipients.entry(key.stream).or_default().push(key.watch);
                }
            }
            for (stream, watches) in recipients {
                self.send_to_stream(stream, watches, revision, events.clone());
            }
            return;
        }
        let mut recipients: BTreeMap<WatcherKey, Vec<Arc<Event>>> = BTreeMap::new();
        for event in events.iter() {
            for group in matching_groups(&self.keys, &self.ranges, event) {
                for (key, _) in group
                    .members
                    .iter()
                    .filter(|(_, filter)| filter.allows_event(event))
                {
                    recipients.entry(*key).or_default().push(event.clone());
                }
            }
        }
        for (key, events) in recipients {
            self.send_to_stream(key.stream, vec![key.watch], revision, events.into());
        }
    }

    fn send_to_stream(
        &mut self,
        number: u64,
        watches: Vec<i64>,
        revision: i64,
        events: RevisionEvents,
    ) {
        let Some(stream) = self.streams.get(&number) else {
            return;
        };
        // No other thread adds to the queue, because this lock is held.
        if stream.waiting.load(Ordering::Relaxed) < MAX_WAITING {
            stream
                .waiting
                .fetch_add(events_weight(&watches, &events), Ordering::Relaxed);
            self.events += (watches.len() * events.len()) as u64;
            // A closed stream removes its watchers itself.
            let _ = stream.sender.send(HubMessage::Events {
                watches,
                revision,
                events,
            });
            return;
        }
        // These messages count too. A stream that never reads then gets one per watcher and no
        // more.
        stream.waiting.fetch_add(watches.len(), Ordering::Relaxed);
        for watch in &watches {
            let _ = stream.sender.send(HubMessage::Unsynced {
                watch: *watch,
                from: revision,
            });
        }
        for watch in watches {
            self.remove_watcher(WatcherKey {
                stream: number,
                watch,
            });
        }
    }

    fn add_watcher(&mut self, key: WatcherKey, watcher: &Watcher) {
        let group = if watcher.end.is_empty() {
            self.keys.entry(watcher.key.clone()).or_default()
        } else {
            self.ranges
                .entry((watcher.key.clone(), watcher.end.clone()))
                .or_default()
        };
        group.members.insert(key, watcher.filter);
        self.places
            .insert(key, (watcher.key.clone(), watcher.end.clone()));
    }

    fn remove_watcher(&mut self, key: WatcherKey) {
        let Some((from, end)) = self.places.remove(&key) else {
            return;
        };
        if end.is_empty() {
            if let Some(group) = self.keys.get_mut(&from) {
                group.members.remove(&key);
                if group.members.is_empty() {
                    self.keys.remove(&from);
                }
            }
        } else if let Some(group) = self.ranges.get_mut(&(from.clone(), end.clone())) {
            group.members.remove(&key);
            if group.members.is_empty() {
                self.ranges.remove(&(from, end));
            }
        }
    }

    fn unsync_all(&mut self) {
        // Everything up to `sent` is already in the queues of the streams.
        let from = self.sent + 1;
        for key in self.places.keys().copied().collect::<Vec<_>>() {
            self.remove_watcher(key);
            if let Some(stream) = self.streams.get(&key.stream) {
                stream.waiting.fetch_add(1, Ordering::Relaxed);
                let _ = stream.sender.send(HubMessage::Unsynced {
                    watch: key.watch,
                    from,
                });
            }
        }
    }
}

impl HubHandle {
    /// Waits for the next message of the hub. Returns `None` when the hub is dropped.
    pub async fn next(&mut self) -> Option<HubMessage> {
        let inbound = self.receiver.recv().await?;
        self.waiting
            .fetch_sub(inbound.queue_weight(), Ordering::Relaxed);
        Some(inbound)
    }

    /// Returns the next message if there is one.
    pub fn try_next(&mut self) -> Option<HubMessage> {
        let inbound = self.receiver.try_recv().ok()?;
        self.waiting
            .fetch_sub(inbound.queue_weight(), Ordering::Relaxed);
        Some(inbound)
    }

    /// Joins a watcher that has received everything before `from`. Returns false if it is unsynced
    /// and must read history first.
    pub fn add_watcher(&self, watch: i64, watcher: &Watcher, from: i64) -> bool {
        let mut shared = self.hub.shared.lock();
        let first = shared.places.is_empty();
        if first {
            // Without synced watchers `sent` is not maintained. The joining watcher must have
            // everything up to the current revision.
            shared.sent = self.hub.store.current_revision();
        }
        if from <= shared.sent {
            return false;
        }
        if from > shared.sent + 1 {
            // The watcher starts at a future revision. Until then its stream skips events.
            tracing::debug!(from, "a watcher from the future");
        }
        shared.add_watcher(
            WatcherKey {
                stream: self.stream,
                watch,
            },
            watcher,
        );
        if first {
            self.hub.synced.notify_one();
        }
        true
    }

    /// Sets the number of watchers of the stream, synced or not.
    pub fn set_watcher_count(&self, count: usize) {
        self.watchers.store(count, Ordering::Relaxed);
    }

    /// Removes a watcher.
    pub fn remove_watcher(&self, watch: i64) {
        self.hub.shared.lock().remove_watcher(WatcherKey {
            stream: self.stream,
            watch,
        });
    }

    /// Returns the revision up to which everything has been sent to synced watchers, though it may
    /// still be queued.
    pub fn sent_revision(&self) -> i64 {
        let shared = self.hub.shared.lock();
        if shared.places.is_empty() {
            self.hub.store.current_revision()
        } else {
            shared.sent
        }
    }
}

impl Drop for HubHandle {
    fn drop(&mut self) {
        let mut shared = self.hub.shared.lock();
        shared.streams.remove(&self.stream);
        let mine: Vec<_> = shared
            .places
            .keys()
            .filter(|key| key.stream == self.stream)
            .copied()
            .collect();
        for key in mine {
            shared.remove_watcher(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::NoLeases;
    use kv_engine::{Batch, Engine, MemoryEngine};
    use proto_etcd::etcdserverpb::PutRequest;

    const VALUE: usize = 1 << 20;

    #[test]
    fn slow_stream_becomes_unsynced_before_much_memory_is_held() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = Arc::new(Store::open(engine, 0).unwrap());
        let hub = Hub::new(store.clone());
        let mut stream = hub.connect_stream();
        let watcher = Watcher {
            key: Bytes::from_static(b"k"),
            end: Bytes::new(),
            filter: WatchFilter::default(),
        };
        assert!(stream.add_watcher(1, &watcher, store.current_revision() + 1));
        let request = PutRequest {
            key: watcher.key.clone(),
            value: vec![b'v'; VALUE].into(),
            ..PutRequest::default()
        };
        for _ in 0..100 {
            let mut writer = store.writer();
            writer.put(&request, &mut NoLeases).unwrap();
            writer.commit(&mut Batch::default());
            drop(writer);
            hub.send_new();
        }
        let mut held = 0;
        while let HubMessage::Events { .. } = stream.try_next().unwrap() {
            held += VALUE;
        }
        assert!(held <= 32 << 20, "{held} bytes were held");
    }
}
