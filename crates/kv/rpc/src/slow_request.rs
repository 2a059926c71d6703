//! Slow-request log: records the phases of each call and logs those of a slow one in one line.
//!
//! The notes are task-local. A linearizable read or a proposal records its phase without the
//! functions in between knowing about it. A fast call pays for a few clock reads only.

use crate::metrics::Call;
use futures::FutureExt;
use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;
use tokio::time::Instant;

/// Durations above which a request is logged with its phases.
#[derive(Clone, Copy, Debug)]
pub struct SlowLimits {
    /// For the whole request.
    pub request: Duration,
    /// For applying its command.
    pub apply: Duration,
}

impl SlowLimits {
    /// Returns whether a request was slow: in the whole, or while its command was applied.
    fn exceeded(self, took: Duration, applying: Option<Duration>) -> bool {
        took > self.request || applying.is_some_and(|applying| applying > self.apply)
    }
}

/// Phases that a call completes, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request was received completely.
    Received,
    /// The read is linearizable.
    Current,
    /// The command was proposed.
    Proposed,
    /// The command is committed and applying it has started.
    Committed,
    /// The command is applied.
    Applied,
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::Received, "received"),
    (Phase::Current, "waited for ReadIndex"),
    (Phase::Proposed, "proposed"),
    (Phase::Committed, "committed"),
    (Phase::Applied, "applied"),
];

/// Start of a call and the completion times of its phases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPhases {
    pub began: Instant,
    passed: [Option<Instant>; PHASES.len()],
}

tokio::task_local! {
    static NOTES: Cell<CallPhases>;
}

impl CallPhases {
    fn new() -> Self {
        CallPhases {
            began: Instant::now(),
            passed: [None; PHASES.len()],
        }
    }

    /// Returns the time that applying the command took.
    fn applying_time(&self) -> Option<Duration> {
        let [.., committed, applied] = self.passed;
        Some(applied?.saturating_duration_since(committed?))
    }

    /// Formats each phase with its duration, and the rest until `end`.
    fn format_phases(&self, end: Instant) -> String {
        let mut text = String::new();
        let mut since = self.began;
        let passed = PHASES
            .iter()
            .zip(self.passed)
            .filter_map(|((_, name), at)| Some((*name, at?)));
        for (name, at) in passed.chain([("answered", end)]) {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string can't fail.
            let _ = write!(
                text,
                "{comma}{name} {:?}",
                at.saturating_duration_since(since)
            );
            since = since.max(at);
        }
        text
    }
}

/// Records that the current call has completed a phase.
pub(crate) fn record_phase(phase: Phase) {
    record_phase_at(phase, Instant::now());
}

/// Like `record_phase`, with a time recorded elsewhere. No effect outside a call.
pub(crate) fn record_phase_at(phase: Phase, at: Instant) {
    // Jobs of the store propose commands too, and have no notes.
    let _ = NOTES.try_with(|cell| {
        let mut notes = cell.get();
        if let Some(place) = notes.passed.get_mut(phase as usize) {
            *place = Some(at);
            cell.set(notes);
        }
    });
}

/// Runs a call and returns its notes with its result. Not an async function, because its future
/// would contain the call three times.
pub(crate) fn track_phases<T>(
    call: impl Future<Output = T>,
) -> impl Future<Output = (T, CallPhases)> {
    NOTES.scope(
        Cell::new(CallPhases::new()),
        call.map(|result| (result, NOTES.with(Cell::get))),
    )
}

/// Logs a slow call. `describe` is called only for those.
pub(crate) fn report_slow(
    limits: SlowLimits,
    call: Call,
    notes: CallPhases,
    code: tonic::Code,
    describe: impl FnOnce() -> String,
) {
    let end = Instant::now();
    let took = end.saturating_duration_since(notes.began);
    let slow = limits.exceeded(took, notes.applying_time());
    // Formatting the request is expensive, so nearly all calls end here.
    if !slow && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let (phases, request, method) = (notes.format_phases(end), describe(), call.path());
    if slow {
        tracing::warn!(method, ?took, expected = ?limits.request, ?code, request, phases, "a request took long");
    } else {
        tracing::debug!(
            method,
            ?took,
            ?code,
            request,
            phases,
            "a request was answered"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn phases_are_formatted_in_order_with_their_durations() {
        let began = Instant::now();
        let ((), mut notes) = track_phases(async {
            record_phase_at(Phase::Received, began + Duration::from_millis(2));
            record_phase_at(Phase::Committed, began + Duration::from_millis(7));
            record_phase_at(Phase::Applied, began + Duration::from_millis(8));
        })
        .await;
        notes.began = began;
        let text = notes.format_phases(began + Duration::from_millis(9));
        assert_eq!(
            text,
            "received 2ms, committed 5ms, applied 1ms, answered 1ms"
        );
        assert_eq!(notes.applying_time(), Some(Duration::from_millis(1)));
    }

    #[test]
    fn phase_outside_a_call_is_ignored() {
        record_phase(Phase::Received);
        assert!(NOTES.try_with(|_| ()).is_err());
    }

    #[test]
    fn phase_that_was_not_reached_is_left_out() {
        let notes = CallPhases::new();
        let end = notes.began + Duration::from_millis(3);
        assert_eq!(notes.format_phases(end), "answered 3ms");
        assert_eq!(notes.applying_time(), None);
    }

    #[test]
    fn request_is_slow_above_either_limit() {
        let ms = Duration::from_millis;
        let limits = SlowLimits {
            request: ms(300),
            apply: ms(100),
        };
        for (took, applying, expect) in [
            (300, None, false),
            (301, None, true),
            (200, Some(100), false),
            (200, Some(101), true),
        ] {
            let slow = limits.exceeded(ms(took), applying.map(ms));
            assert_eq!(slow, expect, "{took} ms, applying {applying:?}");
        }
    }
}
