//! Work queue of keys to reconcile.
//!
//! A key that is added twice is processed once. A key that is added while it is being processed is
//! processed again afterwards, never concurrently. Delayed keys are in one heap, and
//! [`WorkQueue::next`] sleeps until the earliest one: there is no timer task and no polling.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Rate limit of failing keys.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// Delay after the first failure; doubled with each further one.
    pub base: Duration,
    /// Maximum delay.
    pub max: Duration,
    /// Retries per second over all keys.
    pub rate: f64,
    /// Maximum number of retries in a burst.
    pub burst: f64,
}

impl Default for RateLimit {
    /// 5 ms to 1000 s per key, 10 per second with bursts of 100 over all keys, like upstream's
    /// controllers.
    fn default() -> Self {
        let (base, max) = (Duration::from_millis(5), Duration::from_secs(1000));
        Self {
            base,
            max,
            rate: 10.0,
            burst: 100.0,
        }
    }
}

impl RateLimit {
    fn delay_after(&self, failures: u32) -> Duration {
        // In floating point, as in client-go: a shift would overflow after some 60 failures.
        let factor = 2f64.powi(failures.min(60) as i32);
        Duration::try_from_secs_f64(self.base.as_secs_f64() * factor)
            .unwrap_or(self.max)
            .min(self.max)
    }
}

/// Token bucket over all keys. A negative number of tokens means a delay.
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn reserve_token(&mut self, limit: &RateLimit, now: Instant) -> Duration {
        let earned = now.duration_since(self.at).as_secs_f64() * limit.rate;
        // Tokens may become negative: each further key reserves a later slot, instead of all
        // waiting for the same one.
        self.tokens = (self.tokens + earned).min(limit.burst) - 1.0;
        self.at = now;
        Duration::try_from_secs_f64(-self.tokens.min(0.0) / limit.rate).unwrap_or_default()
    }
}

struct State<T> {
    ready: VecDeque<T>,
    dirty: HashSet<T>,
    working: HashSet<T>,
    delayed: BinaryHeap<Reverse<(Instant, u64)>>,
    waiting: HashMap<u64, T>,
    due: HashMap<T, (Instant, u64)>,
    failures: HashMap<T, u32>,
    bucket: Bucket,
    serial: u64,
    closed: bool,
}

impl<T: Clone + Eq + Hash> State<T> {
    fn add_ready(&mut self, item: T) -> bool {
        // A key in `dirty` is queued already, or is processed again when its worker calls `done`.
        if self.closed || !self.dirty.insert(item.clone()) || self.working.contains(&item) {
            return false;
        }
        self.ready.push_back(item);
        true
    }

    fn add_at(&mut self, item: T, when: Instant) {
        if self
            .due
            .get(&item)
            // The earliest time wins, as in client-go's delaying queue: a later one must not
            // postpone a key.
            .is_some_and(|(earlier, _)| *earlier <= when)
        {
            return;
        }
        self.serial += 1;
        // The heap cannot remove entries from its middle. The old entry stays and is skipped when
        // it comes up.
        if let Some((_, old)) = self.due.insert(item.clone(), (when, self.serial)) {
            self.waiting.remove(&old);
        }
        self.waiting.insert(self.serial, item);
        self.delayed.push(Reverse((when, self.serial)));
    }

    /// Moves due keys to the ready ones. Returns the time of the next delayed key.
    fn promote_due(&mut self, now: Instant) -> Option<Instant> {
        while let Some(Reverse((when, serial))) = self.delayed.peek().copied() {
            if !self.waiting.contains_key(&serial) {
                self.delayed.pop();
                continue;
            }
            if when > now {
                return Some(when);
            }
            self.delayed.pop();
            if let Some(item) = self.waiting.remove(&serial) {
                self.due.remove(&item);
                self.add_ready(item);
            }
        }
        None
    }

    fn take_ready(&mut self) -> Option<T> {
        let item = self.ready.pop_front()?;
        // Removed at the start of the work, not at its end: a change that arrives meanwhile must
        // cause another run.
        self.dirty.remove(&item);
        self.working.insert(item.clone());
        Some(item)
    }
}

struct Inner<T> {
    limit: RateLimit,
    state: Mutex<State<T>>,
    changed: Notify,
}

/// The work queue; clones share it.
pub struct WorkQueue<T> {
    inner: Arc<Inner<T>>,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T: Clone + Eq + Hash> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone + Eq + Hash> WorkQueue<T> {
    /// Creates a queue with the rate limit of controllers.
    pub fn new() -> Self {
        Self::with_rate_limit(RateLimit::default())
    }

    /// Creates a queue with its own rate limit.
    pub fn with_rate_limit(limit: RateLimit) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashSet::new(),
            working: HashSet::new(),
            delayed: BinaryHeap::new(),
            waiting: HashMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            bucket: Bucket {
                tokens: limit.burst,
                at: Instant::now(),
            },
            serial: 0,
            closed: false,
        };
        Self {
            inner: Arc::new(Inner {
                limit,
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// Adds a key.
    pub fn add(&self, item: T) {
        if self.inner.state.lock().add_ready(item) {
            self.inner.changed.notify_one();
        }
    }

    /// Adds a key after a delay. If it is delayed already, the earlier time counts.
    pub fn add_after(&self, item: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(item);
        }
        self.inner.state.lock().add_at(item, Instant::now() + delay);
        self.inner.changed.notify_one();
    }

    /// Adds a failed key, after a delay that grows with its number of failures.
    pub fn add_rate_limited(&self, item: T) {
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        let failures = state.failures.entry(item.clone()).or_insert(0);
        // Both limits of client-go's default: the back-off of this key, and the bucket over all
        // keys. The longer delay counts.
        let own = self.inner.limit.delay_after(*failures);
        *failures = failures.saturating_add(1);
        let all = state.bucket.reserve_token(&self.inner.limit, now);
        state.add_at(item, now + own.max(all));
        drop(state);
        self.inner.changed.notify_one();
    }

    /// Resets a key's failures.
    pub fn forget(&self, item: &T) {
        self.inner.state.lock().failures.remove(item);
    }

    /// Returns the number of failures of a key since the last reset.
    pub fn failures(&self, item: &T) -> u32 {
        self.inner
            .state
            .lock()
            .failures
            .get(item)
            .copied()
            .unwrap_or(0)
    }

    /// Returns the number of ready keys.
    pub fn len(&self) -> usize {
        self.inner.state.lock().ready.len()
    }

    /// Returns whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next key. [`WorkQueue::done`] must be called for it. Returns `None` once the
    /// queue is closed, even if keys are ready.
    pub async fn next(&self) -> Option<T> {
        loop {
            // Registered before the state is read, so that a key added in between wakes this
            // worker.
            let changed = self.inner.changed.notified();
            let wake = {
                let mut state = self.inner.state.lock();
                if state.closed {
                    drop(state);
                    self.inner.changed.notify_one();
                    return None;
                }
                let wake = state.promote_due(Instant::now());
                if let Some(item) = state.take_ready() {
                    // One notification may stand for several keys, so each worker wakes the next
                    // one.
                    let more = !state.ready.is_empty() || wake.is_some();
                    drop(state);
                    if more {
                        self.inner.changed.notify_one();
                    }
                    return Some(item);
                }
                wake
            };
            match wake {
                None => changed.await,
                Some(when) => {
                    let _ = tokio::time::timeout_at(when, changed).await;
                }
            }
        }
    }

    /// Ends the processing of a key. If it was added in the meantime, it becomes ready again.
    pub fn done(&self, item: &T) {
        let mut state = self.inner.state.lock();
        state.working.remove(item);
        // Added again while it was processed.
        if state.dirty.contains(item) {
            state.ready.push_back(item.clone());
            drop(state);
            self.inner.changed.notify_one();
        }
    }

    /// Closes the queue: it accepts and returns no more keys. After a lost lease, ready keys belong
    /// to the next leader.
    pub fn close(&self) {
        let mut state = self.inner.state.lock();
        state.closed = true;
        drop(state);
        // Both: workers that wait now, and one that is about to wait.
        self.inner.changed.notify_waiters();
        self.inner.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]
    use super::*;

    #[tokio::test]
    async fn key_is_processed_once_and_never_concurrently() {
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        assert_eq!(queue.next().await, Some("b"));
        queue.done(&"b");
        assert!(queue.is_empty());
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        queue.close();
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn closed_queue_returns_no_ready_key() {
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, Some("a"));
        queue.close();
        assert_eq!(queue.next().await, None);
        queue.add("c");
        queue.done(&"a");
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_and_failed_keys_become_ready_in_time() {
        let queue = WorkQueue::new();
        let start = Instant::now();
        queue.add_after("late", Duration::from_secs(60));
        queue.add_after("soon", Duration::from_millis(40));
        queue.add_after("late", Duration::from_millis(80));
        assert_eq!(queue.next().await, Some("soon"));
        assert!(start.elapsed().as_millis() >= 40);
        assert_eq!(queue.next().await, Some("late"));
        assert!(start.elapsed().as_millis() >= 80);
        queue.done(&"late");
        for want in [5, 10, 20, 40] {
            let before = Instant::now();
            queue.add_rate_limited("late");
            assert_eq!(queue.next().await, Some("late"));
            assert!(
                (want..want + 500).contains(&before.elapsed().as_millis()),
                "{want}"
            );
            queue.done(&"late");
        }
        assert_eq!(queue.failures(&"late"), 4);
        queue.forget(&"late");
        assert_eq!(queue.failures(&"late"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_worker_is_woken_by_an_earlier_delay() {
        let queue = WorkQueue::new();
        queue.add_after(1, Duration::from_secs(100));
        let other = queue.clone();
        let worker = tokio::spawn(async move { other.next().await });
        tokio::task::yield_now().await;
        queue.add_after(2, Duration::from_millis(50));
        let before = Instant::now();
        assert_eq!(worker.await.unwrap(), Some(2));
        assert!(before.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn back_off_of_a_key_doubles_up_to_the_maximum() {
        let limit = RateLimit::default();
        let delays = [0, 1, 10, 17, 18, 60, u32::MAX].map(|failures| limit.delay_after(failures));
        let want =
            [5, 10, 5_120, 655_360, 1_000_000, 1_000_000, 1_000_000].map(Duration::from_millis);
        assert_eq!(delays, want);
    }

    #[test]
    fn bucket_over_all_keys_delays_retries_after_the_burst() {
        let limit = RateLimit {
            rate: 10.0,
            burst: 2.0,
            ..RateLimit::default()
        };
        let start = Instant::now();
        let mut bucket = Bucket {
            tokens: limit.burst,
            at: start,
        };
        let delays: Vec<u128> = (0..4)
            .map(|_| bucket.reserve_token(&limit, start).as_millis())
            .collect();
        assert_eq!(delays, [0, 0, 100, 200]);
        let later = start + Duration::from_secs(60);
        assert!(bucket.reserve_token(&limit, later).is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn key_that_is_added_while_it_is_delayed_is_processed_at_once_and_later() {
        let queue = WorkQueue::new();
        queue.add_after("a", Duration::from_millis(60));
        queue.add("a");
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        let before = Instant::now();
        assert_eq!(queue.next().await, Some("a"));
        assert!(before.elapsed() >= Duration::from_millis(30));
    }

    #[tokio::test(start_paused = true)]
    async fn later_delay_does_not_postpone_a_key() {
        let queue = WorkQueue::new();
        queue.add_after("a", Duration::from_millis(40));
        queue.add_after("a", Duration::from_secs(600));
        let next = tokio::time::timeout(Duration::from_secs(30), queue.next());
        assert_eq!(next.await, Ok(Some("a")));
    }
}
