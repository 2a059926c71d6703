//! Detects that another program changed a table of this one, and decides when to repair it.
//!
//! The kernel notifies of each transaction, so that a node without changes does no work. A
//! transaction of this program is known by its count: of several during one call of `nft`, the
//! others are those of another program. Without notifications, the rules are checked once in a
//! period, until the kernel sends them again.

use std::time::Duration;

use tokio::time::Instant;

use crate::elements::{ElementChange, change_elements};
use crate::monitor::{TableChanges, TableMonitor};
use crate::program::{Error, apply_commands};

/// Time between a change by another program and the repair: such programs often make several.
const REPAIR_DELAY: Duration = Duration::from_millis(10);
/// Least time between two repairs: two programs that claim the table must not keep the node busy.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// The interval is this many times the duration of the last repair: that of many Services takes
/// seconds, during which no other change is applied.
const REPAIR_SHARE: u32 = 20;
/// Limit of the interval.
const MAX_REPAIR_INTERVAL: Duration = Duration::from_secs(300);

/// Time until notifications are requested again: doubling from the first to the last.
const FIRST_REOPENING: Duration = Duration::from_secs(1);
const LAST_REOPENING: Duration = Duration::from_secs(300);

/// Work that a table needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableWork {
    /// Look whether the rules are installed.
    Check,
    /// Install all rules again.
    Repair,
}

/// State of the detection, for one table name of both families.
#[derive(Debug)]
pub struct TableWatch {
    table: &'static str,
    monitor: Option<TableMonitor>,
    schedule: Schedule,
    reopening: Reopening,
}

impl TableWatch {
    /// Subscribes to changes; falls back to checks once in `period` while the kernel sends none.
    #[must_use]
    pub fn open(table: &'static str, period: Duration) -> Self {
        let mut watch = Self {
            table,
            monitor: None,
            schedule: Schedule::new(period),
            reopening: Reopening::default(),
        };
        match TableMonitor::open(table) {
            Ok(monitor) => {
                watch.monitor = Some(monitor);
                watch.reopening.record_opening(Instant::now());
            }
            Err(error) => watch.close_monitor(&error),
        }
        watch
    }

    /// Applies a transaction of this program.
    ///
    /// # Errors
    /// As for [`apply_commands`].
    pub async fn apply(&mut self, commands: &str) -> Result<(), Error> {
        self.record_earlier_changes();
        let work = apply_commands(commands);
        let Some(monitor) = &mut self.monitor else {
            return work.await;
        };
        let (applied, seen) = monitor.watch_during(work).await;
        // Without commands, or after a failure, no transaction of this program was made.
        let own = usize::from(applied.is_ok() && !commands.is_empty());
        match seen {
            Ok(changes) => self.schedule.record_own(changes, own, Instant::now()),
            Err(error) => self.close_monitor(&error),
        }
        applied
    }

    /// Applies changes of elements in one transaction of this program.
    ///
    /// # Errors
    /// As for [`change_elements`].
    pub fn apply_elements(&mut self, changes: &[ElementChange<'_>]) -> Result<(), Error> {
        self.record_earlier_changes();
        let applied = change_elements(self.table, changes);
        let own = usize::from(applied.is_ok() && !changes.is_empty());
        match self.monitor.as_mut().map(TableMonitor::read_changes) {
            None => {}
            Some(Ok(seen)) => self.schedule.record_own(seen, own, Instant::now()),
            Some(Err(error)) => self.close_monitor(&error),
        }
        applied
    }

    /// Records changes by other programs that the kernel notified of, so that a following
    /// transaction of this program is not confused with them.
    fn record_earlier_changes(&mut self) {
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        match monitor.read_changes() {
            Ok(changes) => self.schedule.record_foreign(changes, Instant::now()),
            Err(error) => self.close_monitor(&error),
        }
    }

    /// Records the start of an installation of all rules for another reason than [`TableWork`]: its
    /// duration counts for the time until the next repair.
    pub fn begin_repair(&mut self) {
        self.schedule.begin(TableWork::Repair, Instant::now());
    }

    /// Discards changes before an installation of all rules, which reverts them.
    pub fn discard_changes(&mut self) {
        self.schedule.repair_at = None;
        if let Some(monitor) = &mut self.monitor
            && let Err(error) = monitor.read_changes()
        {
            self.close_monitor(&error);
        }
    }

    /// Waits until the table needs work.
    pub async fn wait_for_work(&mut self) -> TableWork {
        self.schedule.end_repair(Instant::now());
        loop {
            let due = self.schedule.next_due();
            let wait = async {
                match due {
                    Some((at, _)) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let reopening = self.reopening.at;
            let reopen = async {
                match reopening {
                    Some(at) => tokio::time::sleep_until(at).await,
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
                () = reopen => self.reopen_monitor(),
                () = wait => if let Some((_, work)) = due {
                    self.schedule.begin(work, Instant::now());
                    return work;
                },
            }
        }
    }

    fn close_monitor(&mut self, error: &std::io::Error) {
        let now = Instant::now();
        tracing::warn!(
            %error,
            table = self.table,
            "the kernel does not notify of changed rules; they are checked every {} s until it does",
            self.schedule.period.as_secs()
        );
        self.monitor = None;
        self.reopening.record_failure(now);
        self.schedule.check_always(now);
    }

    /// Subscribes again. Changes since the end of the last subscription are unknown.
    fn reopen_monitor(&mut self) {
        let now = Instant::now();
        match TableMonitor::open(self.table) {
            Ok(monitor) => {
                tracing::info!(
                    table = self.table,
                    "the kernel notifies of changed rules again"
                );
                self.monitor = Some(monitor);
                self.reopening.record_opening(now);
                self.schedule.end_checks(now);
            }
            // Logged when it was closed, and not at each attempt.
            Err(_) => self.reopening.record_failure(now),
        }
    }
}

async fn wait_for_change(monitor: &mut Option<TableMonitor>) -> std::io::Result<TableChanges> {
    match monitor {
        Some(monitor) => monitor.wait_for_change().await,
        None => std::future::pending().await,
    }
}

/// The time of the next attempt to open the monitor.
#[derive(Debug, Default)]
struct Reopening {
    at: Option<Instant>,
    delay: Duration,
    opened: Option<Instant>,
}

impl Reopening {
    fn record_opening(&mut self, now: Instant) {
        self.at = None;
        self.opened = Some(now);
    }

    fn record_failure(&mut self, now: Instant) {
        // A monitor that fails soon after each opening must not be opened without delay: each
        // opening causes a repair.
        let lasted = self.opened.take().map(|opened| now - opened);
        if lasted.is_some_and(|lasted| lasted >= LAST_REOPENING) {
            self.delay = Duration::ZERO;
        }
        self.delay = (self.delay * 2).clamp(FIRST_REOPENING, LAST_REOPENING);
        self.at = Some(now + self.delay);
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
    /// The end of the last repair, or its start while it lasts.
    repaired: Option<Instant>,
    repairing: bool,
    repair_interval: Duration,
}

/// Returns the time of the next repair: after [`REPAIR_DELAY`], and one interval after the last.
fn choose_repair_time(last: Option<Instant>, interval: Duration, now: Instant) -> Instant {
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

    /// Ends the checks without notifications with a repair, because changes may have been missed.
    fn end_checks(&mut self, now: Instant) {
        self.always = false;
        self.check_at = None;
        self.plan_repair(now);
    }

    /// Records the changes during a call of `nft` that made `own` transactions of this program.
    fn record_own(&mut self, changes: TableChanges, own: usize, now: Instant) {
        if changes.transactions > own {
            self.plan_repair(now);
        }
        // No repair: a large transaction of this program may fill the buffer each time.
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
        let at = choose_repair_time(self.repaired, self.repair_interval, now);
        self.repair_at = self.repair_at.or(Some(at));
    }

    /// Returns the next work with its time.
    fn next_due(&self) -> Option<(Instant, TableWork)> {
        let repair = self.repair_at.map(|at| (at, TableWork::Repair));
        let check = self.check_at.map(|at| (at, TableWork::Check));
        repair.into_iter().chain(check).min_by_key(|(at, _)| *at)
    }

    fn begin(&mut self, work: TableWork, now: Instant) {
        match work {
            TableWork::Check => self.check_at = self.always.then(|| now + self.period),
            TableWork::Repair => {
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
        let repair = Some((start + REPAIR_DELAY, TableWork::Repair));
        let check = Some((start + PERIOD, TableWork::Check));
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
            Some((start + REPAIR_DELAY, TableWork::Repair))
        );
        schedule.begin(TableWork::Repair, start);
        assert_eq!(schedule.next_due(), None);
        schedule.record_foreign(changes(1, false), later);
        let expect = Some((start + REPAIR_INTERVAL, TableWork::Repair));
        assert_eq!(schedule.next_due(), expect);
    }

    #[test]
    fn long_repairs_are_rare() {
        let mut now = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        for (milliseconds, interval) in [(10, 5), (500, 10), (2_000, 40), (40_000, 300), (10, 5)] {
            schedule.begin(TableWork::Repair, now);
            schedule.record_own(changes(2, false), 1, now);
            now += Duration::from_millis(milliseconds);
            schedule.end_repair(now);
            now += Duration::from_secs(interval);
            assert_eq!(schedule.next_due(), Some((now, TableWork::Repair)));
        }
    }

    #[test]
    fn monitor_that_fails_is_opened_again_with_growing_delays() {
        let mut now = Instant::now();
        let mut reopening = Reopening::default();
        reopening.record_opening(now);
        for (lasted, delay) in [
            (Some(1), 1),
            (None, 2),
            (Some(1), 4),
            (None, 8),
            (Some(299), 16),
            (Some(300), 1),
            (None, 2),
        ] {
            if let Some(lasted) = lasted {
                reopening.record_opening(now);
                assert_eq!(reopening.at, None);
                now += Duration::from_secs(lasted);
            }
            reopening.record_failure(now);
            let expect = Some(now + Duration::from_secs(delay));
            assert_eq!(reopening.at, expect, "{lasted:?}");
        }
        for _ in 0..10 {
            reopening.record_failure(now);
        }
        assert_eq!(reopening.at, Some(now + LAST_REOPENING));
    }

    #[test]
    fn reopened_monitor_ends_checks_with_a_repair() {
        let start = Instant::now();
        let mut schedule = Schedule::new(PERIOD);
        schedule.check_always(start);
        schedule.end_checks(start);
        let repair = Some((start + REPAIR_DELAY, TableWork::Repair));
        assert_eq!(schedule.next_due(), repair);
        schedule.begin(TableWork::Repair, start);
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn checks_repeat_only_without_notifications() {
        let start = Instant::now();
        for (always, expect) in [
            (true, Some((start + PERIOD + PERIOD, TableWork::Check))),
            (false, None),
        ] {
            let mut schedule = Schedule::new(PERIOD);
            match always {
                true => schedule.check_always(start),
                false => schedule.record_own(changes(1, true), 1, start),
            }
            assert_eq!(
                schedule.next_due(),
                Some((start + PERIOD, TableWork::Check))
            );
            schedule.begin(TableWork::Check, start + PERIOD);
            assert_eq!(schedule.next_due(), expect, "{always}");
        }
    }
}
