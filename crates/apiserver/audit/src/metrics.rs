//! Metrics of audit, under upstream's names.

use crate::level::Level;
use base_telemetry::{MetricsPage, format_labels};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const EVENTS: &str = "apiserver_audit_event_total";
const ERRORS: &str = "apiserver_audit_error_total";
const LEVELS: &str = "apiserver_audit_level_total";
const REJECTED: &str = "apiserver_audit_requests_rejected_total";
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The parts of audit that can fail, in the order of upstream's plugins.
const PLUGINS: [&str; 4] = ["buffered", "log", "truncate", "webhook"];

/// Counters of events.
#[derive(Debug, Default)]
pub struct AuditMetrics {
    events: AtomicU64,
    levels: [AtomicU64; 4],
    errors: [AtomicU64; 4],
    rejected: AtomicU64,
    unreported: Mutex<[Unreported; 4]>,
}

/// Lost events of a part that no line of the server's log names yet.
#[derive(Debug, Default)]
struct Unreported {
    events: usize,
    /// The time of the next line.
    next: Option<Instant>,
}

impl AuditMetrics {
    pub(crate) fn count_level(&self, level: Level) {
        if let Some(counter) = self.levels.get(level as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts events that a part could not record, and logs the reason without their content, at
    /// most once a minute.
    pub(crate) fn report_failure(
        &self,
        plugin: &'static str,
        events: usize,
        why: &dyn std::fmt::Display,
    ) {
        let Some(index) = PLUGINS.iter().position(|name| *name == plugin) else {
            return;
        };
        if let Some(counter) = self.errors.get(index) {
            counter.fetch_add(events as u64, Ordering::Relaxed);
        }
        let mut unreported = self.unreported.lock();
        let Some(unreported) = unreported.get_mut(index) else {
            return;
        };
        unreported.events += events;
        let now = Instant::now();
        if unreported.next.is_none_or(|next| next <= now) {
            let events = std::mem::take(&mut unreported.events);
            unreported.next = Some(now + REPORT_INTERVAL);
            tracing::error!(plugin, events, %why, "audit events are not recorded");
        }
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        page.head(EVENTS, "counter", "Audit events sent to the backends.");
        page.sample(EVENTS, "", load(&self.events));
        page.head(
            LEVELS,
            "counter",
            "Requests by the level of the audit policy.",
        );
        for (level, counter) in Level::ALL.into_iter().zip(&self.levels) {
            let labels = format_labels(&[("level", level.as_str())]);
            page.sample(LEVELS, &labels, load(counter));
        }
        page.head(
            ERRORS,
            "counter",
            "Audit events that a part could not record.",
        );
        for (plugin, counter) in PLUGINS.into_iter().zip(&self.errors) {
            let labels = format_labels(&[("plugin", plugin)]);
            page.sample(ERRORS, &labels, load(counter));
        }
        page.head(
            REJECTED,
            "counter",
            "Requests rejected because their audit event could not be recorded.",
        );
        page.sample(REJECTED, "", load(&self.rejected));
    }
}
