//! A bounded cache of forwarded answers. The cluster's own names are not in it.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use crate::forwarded_answer::{ForwardedAnswer, Outcome};
use crate::question::Question;
use crate::slots::identify_client;

/// Memory of cached answers, in bytes: about as many answers as CoreDNS keeps by default (9,984 of
/// each kind).
const SUCCESS_BYTES: u64 = 8 << 20;
const DENIAL_BYTES: u64 = 4 << 20;
/// Estimate of an entry's memory besides its answer, in bytes.
const ENTRY_BYTES: usize = 2 * size_of::<Question>();
/// Larger answers are not cached: a hit copies the answer in the thread that serves all packets.
const MAX_ANSWER_BYTES: usize = 16 << 10;
/// The number of parts with a lock of their own. A part must have room for the largest answer.
const SHARDS: usize = 16;

/// Answers by question.
#[derive(Debug)]
pub(crate) struct AnswerCache {
    success: Part,
    denial: Part,
    max_ttl: Duration,
    shares: Mutex<Shares>,
    requests: AtomicU64,
}

/// The answers of one outcome. They are apart, so that names that do not exist, of which there is
/// no end, cannot evict answers.
#[derive(Debug)]
struct Part {
    answers: Cache<Question, Arc<Entry>, EntryWeighter, RandomState, CountEvictions>,
    hits: AtomicU64,
    evictions: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Entry {
    answer: Arc<ForwardedAnswer>,
    memory: usize,
}

/// Figures of one part of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartFigures {
    pub entries: usize,
    pub hits: u64,
    pub evictions: u64,
}

impl AnswerCache {
    /// Creates an empty cache for answers with TTLs of at most `max_ttl`.
    pub fn new(max_ttl: Duration) -> Self {
        Self {
            success: Part::new(SUCCESS_BYTES),
            denial: Part::new(DENIAL_BYTES),
            max_ttl,
            shares: Mutex::new(Shares::new(max_ttl)),
            requests: AtomicU64::new(0),
        }
    }

    /// Returns the maximum TTL of answers.
    pub fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// Returns a fresh answer.
    pub fn get(&self, question: &Question, now: Instant) -> Option<Arc<ForwardedAnswer>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let denial = self.denial.get(question, now);
        denial.or_else(|| self.success.get(question, now))
    }

    /// Adds an answer to a question of `client`, if it may be reused.
    pub fn insert(
        &self,
        client: IpAddr,
        question: Question,
        answer: Arc<ForwardedAnswer>,
        now: Instant,
    ) {
        let memory = answer.estimate_memory().saturating_add(ENTRY_BYTES);
        if answer.lifetime.is_zero() || memory > MAX_ANSWER_BYTES {
            return;
        }
        let (part, other) = match answer.outcome {
            Outcome::Success => (&self.success, &self.denial),
            Outcome::Denial => (&self.denial, &self.success),
        };
        // A renewed answer takes the place of the stale one; only its growth is counted.
        let stale = part.answers.peek(&question);
        let growth = memory.saturating_sub(stale.map_or(0, |entry| entry.memory));
        // Before the newer one is added, which would count as an eviction of the older one.
        part.answers.remove(&question);
        other.answers.remove(&question);
        if growth > 0 && !self.shares.lock().admit(client, growth as u64, now) {
            return;
        }
        part.answers
            .insert(question, Arc::new(Entry { answer, memory }));
    }

    /// Returns the number of lookups.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the figures of the answers with an outcome.
    pub fn figures(&self, outcome: Outcome) -> PartFigures {
        let part = match outcome {
            Outcome::Success => &self.success,
            Outcome::Denial => &self.denial,
        };
        PartFigures {
            entries: part.answers.len(),
            hits: part.hits.load(Ordering::Relaxed),
            evictions: part.evictions.load(Ordering::Relaxed),
        }
    }
}

impl Part {
    fn new(bytes: u64) -> Self {
        let evictions = Arc::new(AtomicU64::new(0));
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(usize::try_from(bytes >> 10).unwrap_or(usize::MAX))
            .weight_capacity(bytes)
            .build();
        // The keyed hash of the standard library: names are chosen by pods, and must not be able to
        // collide on purpose.
        let hasher = RandomState::new();
        let lifecycle = CountEvictions(evictions.clone());
        let answers = match options {
            Ok(options) => Cache::with_options(options, EntryWeighter, hasher, lifecycle),
            // Only if a capacity is missing.
            Err(_) => Cache::with(1024, bytes, EntryWeighter, hasher, lifecycle),
        };
        Self {
            answers,
            hits: AtomicU64::new(0),
            evictions,
        }
    }

    fn get(&self, question: &Question, now: Instant) -> Option<Arc<ForwardedAnswer>> {
        let entry = self.answers.get(question)?;
        if !entry.answer.is_fresh(now) {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(entry.answer.clone())
    }
}

/// Weighs entries by their memory.
#[derive(Debug, Clone)]
struct EntryWeighter;

impl Weighter<Question, Arc<Entry>> for EntryWeighter {
    fn weight(&self, _: &Question, entry: &Arc<Entry>) -> u64 {
        entry.memory as u64
    }
}

#[derive(Debug, Clone)]
struct CountEvictions(Arc<AtomicU64>);

impl Lifecycle<Question, Arc<Entry>> for CountEvictions {
    type RequestState = ();

    fn begin_request(&self) {}

    fn on_evict(&self, (): &mut (), _: Question, _: Arc<Entry>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Memory that each client added to the cache in a period.
#[derive(Debug)]
struct Shares {
    /// Time after which counting starts again: earlier answers are stale then.
    period: Duration,
    started: Option<Instant>,
    added: HashMap<IpAddr, u64>,
}

impl Shares {
    const MIN_PERIOD: Duration = Duration::from_secs(30);
    /// An eighth of the cache. Answers beyond it are not cached, so that a pod that asks for many
    /// names cannot evict the answers of all other pods.
    const BYTES: u64 = (SUCCESS_BYTES + DENIAL_BYTES) / 8;
    /// Further clients share one count.
    const CLIENTS: usize = 16_384;

    fn new(max_ttl: Duration) -> Self {
        Self {
            period: max_ttl.max(Self::MIN_PERIOD),
            started: None,
            added: HashMap::new(),
        }
    }

    /// Counts an answer; false if the client has used up its share.
    fn admit(&mut self, client: IpAddr, bytes: u64, now: Instant) -> bool {
        if self
            .started
            .is_none_or(|started| now.saturating_duration_since(started) >= self.period)
        {
            self.started = Some(now);
            self.added.clear();
        }
        let client = identify_client(client);
        let known = self.added.len() < Self::CLIENTS || self.added.contains_key(&client);
        let rest = IpAddr::from([0, 0, 0, 0]);
        let added = self
            .added
            .entry(if known { client } else { rest })
            .or_default();
        let total = added.saturating_add(bytes);
        if total > Self::BYTES {
            return false;
        }
        *added = total;
        true
    }
}

#[cfg(test)]
#[path = "answer_cache_tests.rs"]
mod tests;
