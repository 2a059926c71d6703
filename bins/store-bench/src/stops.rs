//! Stops of the machine itself: times in which none of its processors ran even the thread that goes before all others. A
//! virtual machine has them when its host takes the processors away, or when it has used up its share of them: calls then
//! wait for the host, not for the server.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// From, to.
pub type Span = (Instant, Instant);

const STEP: Duration = Duration::from_millis(1);
/// What the kernel itself may keep a processor for is no stop.
const LATE: Duration = Duration::from_millis(5);
/// Before all others.
const PRIORITY: i32 = -20;

/// A thread on each processor, that only looks at the time.
pub struct Stops {
    looking: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<Vec<Span>>>>,
}

impl Stops {
    /// Begins to look.
    pub fn watch() -> Self {
        let looking = Arc::new(AtomicBool::new(true));
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let threads = processors.map(|processor| {
            let looking = looking.clone();
            std::thread::spawn(move || look(processor, &looking))
        });
        let threads = threads.collect();
        Stops { looking, threads }
    }

    /// What was seen; nothing where this process may not go before others, or could look at no processor.
    pub fn end(self) -> Option<Vec<Span>> {
        self.looking.store(false, Ordering::Relaxed);
        let mut all: Option<Vec<Span>> = None;
        for thread in self.threads {
            let seen = thread.join().ok().flatten()?;
            all = Some(match all {
                Some(before) => both(&before, &seen),
                None => seen,
            });
        }
        all
    }
}

fn look(processor: usize, looking: &AtomicBool) -> Option<Vec<Span>> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).ok()?;
    setpriority_process(None, PRIORITY).ok()?;
    let mut seen = Vec::new();
    let mut last = Instant::now();
    while looking.load(Ordering::Relaxed) {
        std::thread::sleep(STEP);
        let now = Instant::now();
        if now - last > LATE {
            seen.push((last + STEP, now));
        }
        last = now;
    }
    Some(seen)
}

/// When both stood.
fn both(one: &[Span], other: &[Span]) -> Vec<Span> {
    let overlaps = one.iter().flat_map(|a| other.iter().map(|b| (a.0.max(b.0), a.1.min(b.1))));
    overlaps.filter(|(from, to)| to > from).collect()
}

/// How long a call took besides.
pub fn besides(call: Span, stops: &[Span]) -> Duration {
    let stood: Duration = both(&[call], stops).iter().map(|(from, to)| *to - *from).sum();
    (call.1 - call.0).saturating_sub(stood)
}

#[cfg(test)]
mod tests {
    use super::{besides, both};
    use std::time::{Duration, Instant};

    #[test]
    fn a_stop_is_what_all_processors_have_in_common_and_is_taken_from_the_calls_that_it_meets() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let stops = both(&[(at(10), at(30)), (at(50), at(60))], &[(at(20), at(55)), (at(70), at(80))]);
        assert_eq!(stops, [(at(20), at(30)), (at(50), at(55))]);
        assert_eq!(besides((at(0), at(40)), &stops), Duration::from_millis(30));
        assert_eq!(besides((at(22), at(52)), &stops), Duration::from_millis(20));
        assert_eq!(besides((at(60), at(90)), &stops), Duration::from_millis(30));
    }
}
