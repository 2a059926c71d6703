//! Back-off policy: the delay before a failed operation is tried again.
//!
//! The worker reports successes and failures with their time, and reads the earliest time of the
//! next try. It has no delays of its own.

use super::{Nanos, SECOND};

const INITIAL_DELAY: Nanos = 10 * SECOND;
const MAX_DELAY: Nanos = 300 * SECOND;
/// Delay after a job that panicked: an immediate retry would most likely panic again.
const PANIC_DELAY: Nanos = 10 * SECOND;
/// Delay after a start that failed before the runtime created the container.
const START_DELAY: Nanos = 10 * SECOND;
/// Delay after a failed pull. The pull itself waits longer; the next start reports that.
const PULL_DELAY: Nanos = 2 * SECOND;
/// Delay after a failed resize, and after a failed write of an allocation.
pub(crate) const RESIZE_DELAY: Nanos = 10 * SECOND;
/// Delay before a deferred resize is decided again. Mostly a pod that ends or shrinks comes first.
pub(crate) const RESIZE_RETRY: Nanos = 180 * SECOND;
/// Delay after a failed call of the runtime that lists or stops something.
pub(crate) const RUNTIME_DELAY: Nanos = SECOND;
/// Set-up of volumes: 1 s, doubled up to 128 s.
pub(crate) const VOLUMES: RetryPolicy = RetryPolicy {
    first: SECOND,
    doublings: 7,
};
/// Creation of the sandbox: 2 s, doubled up to 32 s.
pub(crate) const SANDBOX: RetryPolicy = RetryPolicy {
    first: 2 * SECOND,
    doublings: 4,
};

/// Exponential back-off: 10 s, doubled up to 5 min, reset after 10 min without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Backoff {
    delay: Nanos,
    last: Nanos,
}

impl Backoff {
    /// Returns the earliest time of the next try after a failure at `event`.
    fn ready_at(&self, event: Nanos) -> Nanos {
        if self.expired(event) {
            event
        } else {
            event.saturating_add(self.delay)
        }
    }

    /// Returns the current delay in seconds.
    fn delay_seconds(&self) -> i64 {
        self.delay / SECOND
    }

    /// Records a try.
    fn advance(&mut self, now: Nanos) {
        self.delay = if self.expired(now) {
            INITIAL_DELAY
        } else {
            (self.delay * 2).min(MAX_DELAY)
        };
        self.last = now;
    }

    fn expired(&self, event: Nanos) -> bool {
        // Twice the longest delay without a restart: the container is considered stable.
        self.delay == 0 || event.saturating_sub(self.last) > 2 * MAX_DELAY
    }
}

/// The delays after consecutive failures of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryPolicy {
    /// Delay after the first failure.
    first: Nanos,
    /// Limit of the doublings of that delay.
    doublings: u32,
}

/// The retries of an operation whose failures are counted until it succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retry {
    failures: u32,
    not_before: Nanos,
}

impl Retry {
    /// Records a failure; returns the earliest time of the next try.
    pub(crate) fn record_failure(&mut self, policy: RetryPolicy, now: Nanos) -> Nanos {
        // The shift is limited by the policy, so it cannot overflow.
        self.not_before = now + (policy.first << self.failures.min(policy.doublings));
        self.failures = self.failures.saturating_add(1);
        self.not_before
    }

    /// Records that the job panicked; this does not count as a failure.
    pub(crate) fn record_panic(&mut self, now: Nanos) {
        self.not_before = now + PANIC_DELAY;
    }

    pub(crate) fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Allows the next try at once, because an input changed.
    pub(crate) fn allow_now(&mut self) {
        self.not_before = 0;
    }

    /// Returns the earliest time of the next try.
    pub(crate) fn not_before(&self) -> Nanos {
        self.not_before
    }
}

/// The step at which the start of a container failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedStep {
    /// Before the runtime created the container, and not by a pull.
    Preparation,
    /// The image pull was tried.
    Pull,
    /// The image pull was skipped because of its back-off.
    PullBackOff,
    /// After the runtime had created the container.
    Created,
}

/// The back-off of one container's starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartBackoff {
    /// Earliest time of the next start.
    not_before: Nanos,
    /// Restarts of containers that exited.
    restart: Backoff,
    pull: Backoff,
    /// Earliest time of the next pull.
    pull_not_before: Nanos,
}

impl StartBackoff {
    /// Records the begin of a start. Any but the first counts for the restart back-off.
    pub(crate) fn begin_start(&mut self, attempt: u32, now: Nanos) {
        self.not_before = 0;
        // The first start is no restart and must not delay the second one.
        if attempt > 0 {
            self.restart.advance(now);
        }
    }

    pub(crate) fn record_failure(&mut self, step: FailedStep, now: Nanos) {
        self.not_before = match step {
            FailedStep::Preparation => now + START_DELAY,
            FailedStep::Pull => {
                self.pull.advance(now);
                self.pull_not_before = self.pull.ready_at(now);
                now + PULL_DELAY
            }
            FailedStep::PullBackOff => self.pull_not_before,
            // The created container reports the failure in its own status, and its exit counts for
            // the restart back-off.
            FailedStep::Created => 0,
        };
    }

    pub(crate) fn record_panic(&mut self, now: Nanos) {
        self.not_before = now + PANIC_DELAY;
    }

    /// Records a container that runs, so its image is present.
    pub(crate) fn record_success(&mut self) {
        self.pull_not_before = 0;
    }

    /// Allows the next start at once, because an input changed.
    pub(crate) fn allow_now(&mut self) {
        self.not_before = 0;
    }

    /// Returns the earliest time of the first start.
    pub(crate) fn first_start(&self) -> Nanos {
        self.not_before
    }

    /// Returns the earliest time of the restart of a container that exited at `exit`.
    pub(crate) fn restart_after(&self, exit: Nanos) -> Nanos {
        self.restart.ready_at(exit).max(self.not_before)
    }

    /// Returns the current restart delay in seconds.
    pub(crate) fn restart_delay_seconds(&self) -> i64 {
        self.restart.delay_seconds()
    }

    /// Returns the seconds until the next pull; None if it may be tried now.
    pub(crate) fn remaining_pull_seconds(&self, now: Nanos) -> Option<i64> {
        let left = (self.pull_not_before - now) / SECOND;
        (left > 0).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_is_reset_after_ten_minutes() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.ready_at(5), 5, "the first try is at once");
        let mut waits = Vec::new();
        for _ in 0..7 {
            backoff.advance(100);
            waits.push(backoff.delay_seconds());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        let late = 100 + 601 * SECOND;
        assert_eq!(backoff.ready_at(late), late);
    }

    const NOW: Nanos = 1_000 * SECOND;

    #[test]
    fn retry_delays_double_up_to_their_limit() {
        for (name, policy, expected) in [
            ("volumes", VOLUMES, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]),
            ("sandbox", SANDBOX, [2, 4, 8, 16, 32, 32, 32, 32, 32, 32]),
        ] {
            let mut retry = Retry::default();
            let delays = expected.map(|_| (retry.record_failure(policy, NOW) - NOW) / SECOND);
            assert_eq!(delays, expected, "{name}");
            retry.record_success();
            let next = retry.record_failure(policy, NOW);
            assert_eq!((next - NOW) / SECOND, expected[0], "{name} after a success");
        }
    }

    #[test]
    fn retry_after_panic_or_changed_input_keeps_the_count() {
        let mut retry = Retry::default();
        retry.record_failure(VOLUMES, NOW);
        retry.record_panic(NOW);
        assert_eq!(retry.not_before(), NOW + 10 * SECOND);
        retry.allow_now();
        assert_eq!(retry.not_before(), 0);
        assert_eq!(retry.record_failure(VOLUMES, NOW), NOW + 2 * SECOND);
    }

    #[test]
    fn start_backoff_depends_on_the_failed_step() {
        for (step, first_start, pull) in [
            (FailedStep::Preparation, NOW + 10 * SECOND, None),
            (FailedStep::Pull, NOW + 2 * SECOND, Some(10)),
            (FailedStep::PullBackOff, 0, None),
            (FailedStep::Created, 0, None),
        ] {
            let mut backoff = StartBackoff::default();
            backoff.record_failure(step, NOW);
            assert_eq!(
                (backoff.first_start(), backoff.remaining_pull_seconds(NOW)),
                (first_start, pull),
                "{step:?}"
            );
        }
    }

    #[test]
    fn start_backoff_of_a_skipped_pull_ends_with_the_pull_delay() {
        let mut backoff = StartBackoff::default();
        backoff.record_failure(FailedStep::Pull, NOW);
        backoff.begin_start(0, NOW + 2 * SECOND);
        backoff.record_failure(FailedStep::PullBackOff, NOW + 2 * SECOND);
        assert_eq!(backoff.first_start(), NOW + 10 * SECOND);
        assert_eq!(backoff.remaining_pull_seconds(NOW + 10 * SECOND), None);
        backoff.record_success();
        assert_eq!(backoff.remaining_pull_seconds(NOW), None);
    }

    #[test]
    fn start_backoff_counts_restarts_but_not_the_first_start() {
        let exit = NOW + SECOND;
        for (attempts, delay) in [(0..=0, 0), (0..=1, 10), (0..=2, 20), (0..=6, 300)] {
            let mut backoff = StartBackoff::default();
            let case = format!("{attempts:?}");
            attempts.for_each(|attempt| backoff.begin_start(attempt, NOW));
            assert_eq!(backoff.restart_after(exit), exit + delay * SECOND, "{case}");
            assert_eq!(backoff.restart_delay_seconds(), delay, "{case}");
        }
    }
}
