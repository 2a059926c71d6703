//! Watches: one hub fans the newest revisions out to streams; a stream that can't keep up reads on by itself.
//!
//! A watcher is either joined (the hub sends it what comes) or behind (its stream reads history in batches from the
//! watcher's cursor and then asks to join). The hub never waits for a stream.

use crate::history::{Event, RevisionEvents};
use crate::span::Span;
use crate::store::Store;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, mpsc};

/// Revisions read from history at once.
const BATCH: usize = 1_000;
/// Deliveries that may wait for a stream before its watchers are set aside.
const MAX_WAITING: usize = 4_096;
/// Bytes of large events count as much as a delivery: what waits for a stream is bounded in bytes, too.
const BYTES: usize = 4 << 10;

/// Which changes a watcher leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchFilter {
    /// No puts.
    pub no_put: bool,
    /// No deletions.
    pub no_delete: bool,
}

impl WatchFilter {
    /// Whether an event passes.
    pub fn passes(self, event: &Event) -> bool {
        if event.mark.dead() { !self.no_delete } else { !self.no_put }
    }
}

/// A stream's name for one of its watchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatcherKey {
    /// Stream.
    pub stream: u64,
    /// Watcher in the stream.
    pub watch: i64,
}

/// What a watcher wants.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// First key.
    pub key: Bytes,
    /// End of the interval, as in requests.
    pub end: Bytes,
    /// What is left out.
    pub filter: WatchFilter,
}

impl Watcher {
    /// The events of a revision that it wants.
    pub fn wanted(&self, events: &RevisionEvents) -> Vec<Arc<Event>> {
        let span = Span::new(&self.key, &self.end);
        events.iter().filter(|event| span.contains(&event.kv.key) && self.filter.passes(event)).cloned().collect()
    }
}

/// What the hub tells a stream.
#[derive(Debug)]
pub enum Inbound {
    /// Events of a revision for all these watchers.
    Events {
        /// Watchers in the stream.
        watches: Vec<i64>,
        /// The revision that they are of.
        revision: i64,
        /// The events.
        events: Arc<[Arc<Event>]>,
    },
    /// The watcher is no longer joined: it has everything before this revision.
    SetAside {
        /// Watcher in the stream.
        watch: i64,
        /// Where to read on.
        from: i64,
    },
}

impl Inbound {
    /// What it counts for among what waits.
    fn weight(&self) -> usize {
        match self {
            Inbound::Events { watches, events, .. } => weight(watches, events),
            Inbound::SetAside { .. } => 1,
        }
    }
}

fn weight(watches: &[i64], events: &[Arc<Event>]) -> usize {
    watches.len() + events.iter().map(|event| event.record.len()).sum::<usize>() / BYTES
}

struct Stream {
    sender: mpsc::UnboundedSender<Inbound>,
    waiting: Arc<AtomicUsize>,
    /// Watchers that the stream has, joined or not.
    watchers: Arc<AtomicUsize>,
}

/// Watchers of the same keys.
#[derive(Default)]
struct Group {
    members: BTreeMap<WatcherKey, WatchFilter>,
}

type Ranges = BTreeMap<(Bytes, Bytes), Group>;

/// The groups of watchers that an event concerns.
fn groups<'a>(
    keys: &'a HashMap<Bytes, Group>,
    ranges: &'a Ranges,
    event: &'a Event,
) -> impl Iterator<Item = &'a Group> {
    let below = ranges.range(..=(event.kv.key.clone(), Bytes::from_static(&[0xff; 64])));
    let covering = below.filter(|((from, end), _)| Span::new(from, end).contains(&event.kv.key));
    keys.get(&event.kv.key).into_iter().chain(covering.map(|(_, group)| group))
}

#[derive(Default)]
struct Shared {
    streams: HashMap<u64, Stream>,
    /// By single key.
    keys: HashMap<Bytes, Group>,
    /// By interval.
    ranges: Ranges,
    places: HashMap<WatcherKey, (Bytes, Bytes)>,
    /// Everything up to here has been sent.
    sent: i64,
    next_stream: u64,
    /// Events sent since the start.
    events: u64,
}

/// What the hub has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct HubSizes {
    /// Streams.
    pub streams: usize,
    /// Watchers that are joined.
    pub joined: usize,
    /// Watchers that read on by themselves.
    pub behind: usize,
    /// Deliveries that wait for their stream.
    pub waiting: usize,
    /// Deliveries since the start.
    pub sent: u64,
}

/// Fans revisions out.
pub struct Hub {
    store: Arc<Store>,
    shared: Mutex<Shared>,
    joined: Notify,
}

/// A stream's connection to the hub. Dropping it ends its watchers.
pub struct HubHandle {
    hub: Arc<Hub>,
    stream: u64,
    receiver: mpsc::UnboundedReceiver<Inbound>,
    waiting: Arc<AtomicUsize>,
    watchers: Arc<AtomicUsize>,
}

impl Hub {
    /// A hub that starts at the store's present.
    pub fn new(store: Arc<Store>) -> Arc<Hub> {
        let shared = Shared { sent: store.revision(), ..Shared::default() };
        Arc::new(Hub { store, shared: Mutex::new(shared), joined: Notify::new() })
    }

    /// Sends what comes until the store is gone.
    pub async fn run(&self) {
        let mut revisions = self.store.revisions();
        loop {
            if !self.send_new() {
                // Nothing to wake up for with every revision.
                self.joined.notified().await;
            } else if revisions.changed().await.is_err() {
                return;
            }
        }
    }

    /// What there is to do, for metrics.
    pub fn sizes(&self) -> HubSizes {
        let shared = self.shared.lock();
        let sum = |count: fn(&Stream) -> &AtomicUsize| -> usize {
            shared.streams.values().map(|stream| count(stream).load(Ordering::Relaxed)).sum()
        };
        let joined = shared.places.len();
        HubSizes {
            streams: shared.streams.len(),
            joined,
            behind: sum(|stream| &stream.watchers).saturating_sub(joined),
            waiting: sum(|stream| &stream.waiting),
            sent: shared.events,
        }
    }

    /// A new stream.
    pub fn connect(self: &Arc<Self>) -> HubHandle {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (waiting, watchers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut shared = self.shared.lock();
        shared.next_stream += 1;
        let stream = shared.next_stream;
        shared.streams.insert(stream, Stream { sender, waiting: waiting.clone(), watchers: watchers.clone() });
        HubHandle { hub: self.clone(), stream, receiver, waiting, watchers }
    }

    /// Whether anybody is joined.
    fn send_new(&self) -> bool {
        loop {
            let mut shared = self.shared.lock();
            if shared.places.is_empty() {
                return false;
            }
            let from = shared.sent + 1;
            let Ok((revisions, _)) = self.store.history(from, BATCH) else {
                // Replaced by a snapshot, or compacted before it was sent: everyone reads on by himself.
                let present = self.store.revision();
                shared.set_all_aside();
                shared.sent = present;
                return true;
            };
            if revisions.is_empty() {
                return true;
            }
            for events in &revisions {
                shared.send(events);
            }
        }
    }
}

impl Shared {
    fn send(&mut self, events: &RevisionEvents) {
        let Some(revision) = events.first().map(|event| event.mark.main()) else { return };
        self.sent = revision;
        // Usually one event: whoever wants it gets the same, and a stream is told once for all of its watchers.
        if let [event] = events.as_ref() {
            let mut wanted: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
            for group in groups(&self.keys, &self.ranges, event) {
                for (key, _) in group.members.iter().filter(|(_, filter)| filter.passes(event)) {
                    wanted.entry(key.stream).or_default().push(key.watch);
                }
            }
            for (stream, watches) in wanted {
                self.deliver(stream, watches, revision, events.clone());
            }
            return;
        }
        let mut wanted: BTreeMap<WatcherKey, Vec<Arc<Event>>> = BTreeMap::new();
        for event in events.iter() {
            for group in groups(&self.keys, &self.ranges, event) {
                for (key, _) in group.members.iter().filter(|(_, filter)| filter.passes(event)) {
                    wanted.entry(*key).or_default().push(event.clone());
                }
            }
        }
        for (key, events) in wanted {
            self.deliver(key.stream, vec![key.watch], revision, events.into());
        }
    }

    fn deliver(&mut self, number: u64, watches: Vec<i64>, revision: i64, events: RevisionEvents) {
        let Some(stream) = self.streams.get(&number) else { return };
        // Nobody else adds to it meanwhile: this lock is held.
        if stream.waiting.load(Ordering::Relaxed) < MAX_WAITING {
            stream.waiting.fetch_add(weight(&watches, &events), Ordering::Relaxed);
            self.events += (watches.len() * events.len()) as u64;
            // A stream that is gone takes its watchers with it by itself.
            let _ = stream.sender.send(Inbound::Events { watches, revision, events });
            return;
        }
        stream.waiting.fetch_add(watches.len(), Ordering::Relaxed);
        for watch in &watches {
            let _ = stream.sender.send(Inbound::SetAside { watch: *watch, from: revision });
        }
        for watch in watches {
            self.leave(WatcherKey { stream: number, watch });
        }
    }

    fn join(&mut self, key: WatcherKey, watcher: &Watcher) {
        let group = if watcher.end.is_empty() {
            self.keys.entry(watcher.key.clone()).or_default()
        } else {
            self.ranges.entry((watcher.key.clone(), watcher.end.clone())).or_default()
        };
        group.members.insert(key, watcher.filter);
        self.places.insert(key, (watcher.key.clone(), watcher.end.clone()));
    }

    fn leave(&mut self, key: WatcherKey) {
        let Some((from, end)) = self.places.remove(&key) else { return };
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

    fn set_all_aside(&mut self) {
        let from = self.sent + 1;
        for key in self.places.keys().copied().collect::<Vec<_>>() {
            self.leave(key);
            if let Some(stream) = self.streams.get(&key.stream) {
                stream.waiting.fetch_add(1, Ordering::Relaxed);
                let _ = stream.sender.send(Inbound::SetAside { watch: key.watch, from });
            }
        }
    }
}

impl HubHandle {
    /// The next message from the hub; none when the hub is gone.
    pub async fn next(&mut self) -> Option<Inbound> {
        let inbound = self.receiver.recv().await?;
        self.waiting.fetch_sub(inbound.weight(), Ordering::Relaxed);
        Some(inbound)
    }

    /// A message that is already there.
    pub fn try_next(&mut self) -> Option<Inbound> {
        let inbound = self.receiver.try_recv().ok()?;
        self.waiting.fetch_sub(inbound.weight(), Ordering::Relaxed);
        Some(inbound)
    }

    /// Joins a watcher that has everything before `from`. False: it is behind, and has to read on first.
    pub fn join(&self, watch: i64, watcher: &Watcher, from: i64) -> bool {
        let mut shared = self.hub.shared.lock();
        let first = shared.places.is_empty();
        if first {
            // Nobody was sent anything lately: whoever joins has to have everything up to here.
            shared.sent = self.hub.store.revision();
        }
        if from <= shared.sent {
            return false;
        }
        if from > shared.sent + 1 {
            // It waits for a revision to come: until then, its stream leaves out what is before.
            tracing::debug!(from, "a watcher from the future");
        }
        shared.join(WatcherKey { stream: self.stream, watch }, watcher);
        if first {
            self.hub.joined.notify_one();
        }
        true
    }

    /// Says how many watchers the stream has, joined or not.
    pub fn has_watchers(&self, count: usize) {
        self.watchers.store(count, Ordering::Relaxed);
    }

    /// Ends a watcher.
    pub fn leave(&self, watch: i64) {
        self.hub.shared.lock().leave(WatcherKey { stream: self.stream, watch });
    }

    /// Everything up to here has been sent to joined watchers, though it may still wait in the stream.
    pub fn sent(&self) -> i64 {
        let shared = self.hub.shared.lock();
        if shared.places.is_empty() { self.hub.store.revision() } else { shared.sent }
    }
}

impl Drop for HubHandle {
    fn drop(&mut self) {
        let mut shared = self.hub.shared.lock();
        shared.streams.remove(&self.stream);
        let mine: Vec<_> = shared.places.keys().filter(|key| key.stream == self.stream).copied().collect();
        for key in mine {
            shared.leave(key);
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
    fn who_reads_nothing_is_set_aside_before_much_memory_is_held() {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let store = Arc::new(Store::open(engine, 0).unwrap());
        let hub = Hub::new(store.clone());
        let mut stream = hub.connect();
        let watcher = Watcher { key: Bytes::from_static(b"k"), end: Bytes::new(), filter: WatchFilter::default() };
        assert!(stream.join(1, &watcher, store.revision() + 1));
        let request = PutRequest { key: watcher.key.clone(), value: vec![b'v'; VALUE].into(), ..PutRequest::default() };
        for _ in 0..100 {
            let mut writer = store.writer();
            writer.put(&request, &mut NoLeases).unwrap();
            writer.commit(&mut Batch::default());
            drop(writer);
            hub.send_new();
        }
        let mut held = 0;
        while let Inbound::Events { .. } = stream.try_next().unwrap() {
            held += VALUE;
        }
        assert!(held <= 32 << 20, "{held} bytes were held");
    }
}
