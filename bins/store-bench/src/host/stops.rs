//! Machine stops: times in which no processor ran even the thread with the highest priority. They
//! occur in a virtual machine when its host withdraws the processors or its share is used up. Calls
//! then wait for the host, not for the server.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Start and end.
pub type Span = (Instant, Instant);

// Much shorter than `LATE`, but long enough to leave the processors to the servers.
const STEP: Duration = Duration::from_millis(1);
/// Delay that the kernel itself may cause, which does not count as a stop.
const LATE: Duration = Duration::from_millis(5);
/// The highest priority.
const PRIORITY: i32 = -20;

/// A thread on each processor that only reads the clock.
pub struct StopWatcher {
    watching: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<Vec<Span>>>>,
}

impl StopWatcher {
    /// Starts the threads.
    pub fn start_watching() -> Self {
        let watching = Arc::new(AtomicBool::new(true));
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let threads = processors.map(|processor| {
            let watching = watching.clone();
            std::thread::spawn(move || watch_processor(processor, &watching))
        });
        let threads = threads.collect();
        StopWatcher { watching, threads }
    }

    /// Returns the detected stops, or `None` if this process may not raise its priority or has no
    /// processor to watch.
    pub fn finish_watching(self) -> Option<Vec<Span>> {
        self.watching.store(false, Ordering::Relaxed);
        let mut all: Option<Vec<Span>> = None;
        for thread in self.threads {
            let seen = thread.join().ok().flatten()?;
            all = Some(match all {
                // A delay on one processor may be the kernel's. Only all of them at once are a stop
                // of the machine.
                Some(before) => intersect_spans(&before, &seen),
                None => seen,
            });
        }
        all
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of its own, which measures sleeps"
)]
fn watch_processor(processor: usize, watching: &AtomicBool) -> Option<Vec<Span>> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).ok()?;
    // At this priority the load itself does not delay the thread. What delays it also delays every
    // server.
    setpriority_process(None, PRIORITY).ok()?;
    let mut seen = Vec::new();
    let mut last = Instant::now();
    while watching.load(Ordering::Relaxed) {
        std::thread::sleep(STEP);
        let now = Instant::now();
        if now - last > LATE {
            // The thread wanted to sleep for one step, so the stop can only have begun after it.
            seen.push((last + STEP, now));
        }
        last = now;
    }
    Some(seen)
}

/// Returns the intersections of two sets of spans.
fn intersect_spans(one: &[Span], other: &[Span]) -> Vec<Span> {
    let overlaps = one
        .iter()
        .flat_map(|a| other.iter().map(|b| (a.0.max(b.0), a.1.min(b.1))));
    overlaps.filter(|(from, to)| to > from).collect()
}

/// Returns the duration of a call without the stops.
pub fn duration_without_stops(call: Span, stops: &[Span]) -> Duration {
    let stood: Duration = intersect_spans(&[call], stops)
        .iter()
        .map(|(from, to)| *to - *from)
        .sum();
    (call.1 - call.0).saturating_sub(stood)
}

#[cfg(test)]
mod tests {
    use super::{duration_without_stops, intersect_spans};
    use std::time::{Duration, Instant};

    #[test]
    fn stop_is_shared_by_all_processors_and_subtracted_from_calls() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let stops = intersect_spans(
            &[(at(10), at(30)), (at(50), at(60))],
            &[(at(20), at(55)), (at(70), at(80))],
        );
        assert_eq!(stops, [(at(20), at(30)), (at(50), at(55))]);
        assert_eq!(
            duration_without_stops((at(0), at(40)), &stops),
            Duration::from_millis(30)
        );
        assert_eq!(
            duration_without_stops((at(22), at(52)), &stops),
            Duration::from_millis(20)
        );
        assert_eq!(
            duration_without_stops((at(60), at(90)), &stops),
            Duration::from_millis(30)
        );
    }
}
