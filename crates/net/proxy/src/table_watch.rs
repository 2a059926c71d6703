//! Detects that another program changed the proxy's tables, and decides when to repair them.
//!
//! The kernel notifies of each transaction, so that a node without changes does no work. A
//! transaction of the proxy itself is known by its count: of several during one call of `nft`, the
//! others are those of another program. Without notifications, the rules are checked once in a
//! sync period.

use std::time::Duration;

use net_nft::{TableChanges, TableMonitor};
use tokio::time::Instant;

use crate::base_chains::TABLE;

/// Time between a change by another program and the repair: such programs often make several.
const REPAIR_DELAY: Duration = Duration::from_millis(10);
/// Least time between two repairs: two programs that claim the table must not keep the node busy.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// The interval is this many times the duration of the last repair: that of many Services takes
/// seconds, during which no other change is applied.
const REPAIR_SHARE: u32 = 20;
/// Limit of the interval.
const MAX_REPAIR_INTERVAL: Duration = Duration::from_secs(300);

/// Work that the tables need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Look whether the rules are installed.
    Check,
    /// Install all rules again.
    Repair,
}

/// State of the detection.
pub(crate) struct TableWatch {
    monitor: Option<TableMonitor>,
    schedule: Schedule,
}

impl TableWatch {
    /// Subscribes to changes; falls back to checks once in `period` if the kernel sends none.
    pub(crate) fn open(period: Duration) -> Self {
        let mut schedule = Schedule::new(period);
        let monitor = TableMonitor::open(TABLE)
            .inspect_err(|error| {
                tracing::warn!(%error, "the kernel does not notify of changed rules; they are checked every {} s", period.as_secs());
                schedule.check_always(Instant::now());
            })
            .ok();
        Self { monitor, schedule }
    }

    /// Applies a transaction of the proxy.
    ///
    /// # Errors
    /// As for [`net_nft::apply_commands`].
    pub(crate) async fn apply(&mut self, commands: &str) -> Result<(), net_nft::Error> {
        self.record_earlier_changes();
        let work = net_nft::apply_commands(commands);
        let Some(monitor) = &mut self.monitor else {
            return work.await;
        };
        let (applied, seen) = monitor.watch_during(work).await;
        // Without commands, or after a failure, no transaction of the proxy was made.
        let own = usize::from(applied.is_ok() && !commands.is_empty());
        match seen {
            Ok(changes) => self.schedule.record_own(changes, own, Instant::now()),
            Err(error) => self.close_monitor(&error),
        }
        applied
    }

    /// Records changes by other programs that the kernel notified of, so that a following
    /// transaction of the proxy is not confused with them.
    fn record_earlier_changes(&mut self) {
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        match monitor.read_changes() {
            Ok(changes) => self.schedule.record_foreign(changes, Instant::now()),
            Err(error) => self.close_monitor(&error),
        }
    }

    /// Discards changes before an installation of all rules, which reverts them.
    pub(crate) fn discard_changes(&mut self) {
        self.schedule.repair_at = None;
        if let Some(monitor) = &mut self.monitor
            && let Err(error) = monitor.read_changes()
        {
            self.close_monitor(&error);
        }
    }

    /// Waits until the tables need work.
    pub(crate) async fn wait_for_work(&mut self) -> Work {
        self.schedule.end_repair(Instant::now());
        loop {
            let due = self.schedule.next_due();
            let wait = async {
                match due {
                    Some((at, _)) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            // While a repair is due, more changes do not matter.
            let listens = self.schedule.repair_at.is_none();
            tokio::select! {
                changes = wait_for_change(&mut self.monitor), if listens => match changes {
                    Ok(changes) => self.schedule.record_foreign(changes, Instant::now()),
                    Err(error) => self.close_monitor(&error),
                },
                () = wait => if let Some((_, work)) = due {
                    self.schedule.begin(work, Instant::now());
                    return work;
                },
            }
        }
    }

    fn close_monitor(&mut self, error: &std::io::Error) {
        tracing::warn!(%error, "notifications of changed rules have ended; rules are checked every {} s", self.schedule.period.as_secs());
        self.monitor = None;
        self.schedule.check_always(Instant::now());
    }
}

async fn wait_for_change(monitor: &mut Option<TableMonitor>) -> std::io::Result<TableChanges> {
    match monitor {
        Some(monitor) => monitor.wait_for_change().await,
        None => std::future::pending().await,
    }
}

/// The times of checks and repairs.
#[derive(Debug)]
struct Schedule {
    period: Duration,
    /// There are no notifications.
    always: bool,
    check_at: Option<Instant>,
    repair_at: Option<Instant>,
    /// The end of the last repair, or its begin while it lasts.
    repaired: Option<Instant>,
    repairing: bool,
    repair_interval: Duration,
}

/// Returns the time of the next repair or check after the last one of its kind.
fn plan_after(last: Option<Instant>, interval: Duration, now: Instant) -> Instant {
    let soon = now + REPAIR_DELAY;
    last.map_or(soon, |last| soon.max(last + interval))
}

impl Schedule {
    fn new(period: Duration) -> Self {
        Self {
            period,
            always: false,
            check_at: None,
            repair_at: None,
            repaired: None,
            repairing: false,
            repair_interval: REPAIR_INTERVAL,
        }
    }

    fn check_always(&mut self, now: Instant) {
        self.always = true;
        self.check_at = Some(now + self.period);
    }

    /// Records the changes during a call of `nft` that made `own` transactions of the proxy.
    fn record_own(&mut self, changes: TableChanges, own: usize, now: Instant) {
        if changes.transactions > own {
            self.plan_repair(now);
        }
        // No repair: a large transaction of the proxy itself may fill the buffer each time.
        if changes.lost {
            self.check_at = self.check_at.or(Some(now + self.period));
        }
    }

    fn record_foreign(&mut self, changes: TableChanges, now: Instant) {
        // A lost notification may have been that of a change of this table. The interval bounds the
        // work if large transactions with other tables fill the buffer.
        if changes.any() {
            self.plan_repair(now);
        }
    }

    fn plan_repair(&mut self, now: Instant) {
        let at = plan_after(self.repaired, self.repair_interval, now);
        self.repair_at = self.repair_at.or(Some(at));
    }

    /// Returns the next work with its time.
    fn next_due(&self) -> Option<(Instant, Work)> {
        let repair = self.repair_at.map(|at| (at, Work::Repair));
        let check = self.check_at.map(|at| (at, Work::Check));
        repair.into_iter().chain(check).min_by_key(|(at, _)| *at)
    }

    fn begin(&mut self, work: Work, now: Instant) {
        match work {
            Work::Check => self.check_at = self.always.then(|| now + self.period),
            Work::Repair => {
                self.repair_at = None;
                self.repaired = Some(now);
                self.repairing = true;
            }
        }
    }

    /// Records the end of a repair: a long one must not be followed by the next one at once.
    fn end_repair(&mut self, now: Instant) {
        if std::mem::take(&mut self.repairing) {
            let took = self.repaired.map_or(Duration::ZERO, |begun| now - begun);
            self.repair_interval =
                (took * REPAIR_SHARE).clamp(REPAIR_INTERVAL, MAX_REPAIR_INTERVAL);
            self.repaired = Some(now);
            let at = now + self.repair_interval;
            self.repair_at = self.repair_at.map(|_| at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    fn changes(transactions: usize, lost: bool) -> TableChanges {
        TableChanges { transactions, lost }
    }

    #[test]
    fn only_transactions_of_others_cause_work() {
        let start = Instant::now();
        let repair = Some((start + REPAIR_DELAY, Work::Repair));
        let check = Some((start + PERIOD, Work::Check));
        for (own, seen, expect) in [
            (Some(1), changes(0, false), None),
            (Some(1), changes(1, false), None),
            (Some(1), changes(2, false), repair),
            (Some(1), changes(1, true), check),
            (Some(0), changes(0, false), None),
            (Some(0), changes(1, false), repair),
            (None, changes(0, false), None),
            (None, changes(1, false), repair),
            (None, changes(0, true), repair),
            (None, changes(1, true), repair),
        ] {
            let mut schedule = Schedule::new(PERIOD);
            match own {
                Some(own) => schedule.record_own(seen, own, start),
                None => schedule.record_foreign(seen, start),
            }
            assert_eq!(schedule.next_due(), expect, "{own:?} {seen:?}");
        }
    }

    #[test]
    fn repairs_keep_an_interval() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        schedule.record_foreign(changes(1, false), start);
        let later = start + Duration::from_millis(5);
        schedule.record_foreign(changes(1, false), later);
        assert_eq!(
            schedule.next_due(),
            Some((start + REPAIR_DELAY, Work::Repair))
        );
        schedule.begin(Work::Repair, start);
        assert_eq!(schedule.next_due(), None);
        schedule.record_foreign(changes(1, false), later);
        let expect = Some((start + REPAIR_INTERVAL, Work::Repair));
        assert_eq!(schedule.next_due(), expect);
    }

    #[test]
    fn long_repairs_are_rare() {
        let mut now = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        for (milliseconds, interval) in [(10, 5), (500, 10), (2_000, 40), (40_000, 300), (10, 5)] {
            schedule.begin(Work::Repair, now);
            schedule.record_own(changes(2, false), 1, now);
            now += Duration::from_millis(milliseconds);
            schedule.end_repair(now);
            now += Duration::from_secs(interval);
            assert_eq!(schedule.next_due(), Some((now, Work::Repair)));
        }
    }

    #[test]
    fn checks_repeat_only_without_notifications() {
        let start = Instant::now();
        for (always, expect) in [
            (true, Some((start + PERIOD + PERIOD, Work::Check))),
            (false, None),
        ] {
            let mut schedule = Schedule::new(PERIOD);
            match always {
                true => schedule.check_always(start),
                false => schedule.record_own(changes(1, true), 1, start),
            }
            assert_eq!(schedule.next_due(), Some((start + PERIOD, Work::Check)));
            schedule.begin(Work::Check, start + PERIOD);
            assert_eq!(schedule.next_due(), expect, "{always}");
        }
    }
}
