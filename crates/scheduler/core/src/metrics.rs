//! Metrics, with upstream's names.

use std::time::Duration;

use base_telemetry::{Histogram, Metrics};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::queue::Counts;

/// Bounds of durations, in seconds: from 1 ms, doubling 14 times.
const DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

/// The scheduler's metrics.
#[derive(Clone)]
pub(crate) struct SchedulerMetrics {
    registry: Metrics,
    attempts: Family<AttemptLabels, Counter>,
    durations: Histogram,
    binding: Histogram,
    waiting: Histogram,
    pending: Family<QueueLabels, Gauge>,
    preempted: Counter,
}

impl SchedulerMetrics {
    pub(crate) fn new() -> Self {
        let registry = Metrics::new();
        let histogram =
            |name: &str, help: &str| registry.register(name, help, Histogram::new(&DURATIONS));
        Self {
            attempts: registry.register(
                "scheduler_schedule_attempts",
                "Attempts to schedule pods, by result",
                Family::default(),
            ),
            durations: histogram(
                "scheduler_scheduling_algorithm_duration_seconds",
                "Time to decide",
            ),
            binding: histogram("scheduler_binding_duration_seconds", "Time to bind"),
            waiting: histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Time from coming to being bound",
            ),
            pending: registry.register(
                "scheduler_pending_pods",
                "Pods without a node, by queue",
                Family::default(),
            ),
            preempted: registry.register(
                "scheduler_preemption_victims",
                "Pods removed to make room",
                Counter::default(),
            ),
            registry,
        }
    }

    pub(crate) fn observe_attempt(&self, result: &'static str, profile: &str, took: Duration) {
        self.attempts
            .get_or_create(&AttemptLabels {
                result,
                profile: profile.to_owned(),
            })
            .inc();
        self.durations.observe_duration(took);
    }

    pub(crate) fn observe_bound(&self, binding: Duration, since: Duration) {
        self.binding.observe_duration(binding);
        self.waiting.observe_duration(since);
    }

    pub(crate) fn count_victim(&self) {
        self.preempted.inc();
    }

    /// Renders `/metrics`.
    pub(crate) fn encode(&self, counts: Counts) -> String {
        let places = [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("gated", counts.gated),
        ];
        // Gauges are set when the page is read: the queue counts anyway, and a counter in each move
        // could drift.
        for (queue, count) in places {
            self.pending
                .get_or_create(&QueueLabels { queue })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.registry.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_upstream_s_names_and_the_numbers_of_the_queue() {
        let metrics = SchedulerMetrics::new();
        metrics.observe_attempt("scheduled", "default-scheduler", Duration::from_millis(3));
        metrics.observe_bound(Duration::from_millis(1), Duration::from_millis(5));
        metrics.count_victim();
        let counts = Counts {
            active: 4,
            ..Counts::default()
        };
        let page = metrics.encode(counts);
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1",
            "scheduler_pending_pods{queue=\"active\"} 4",
            "scheduler_pending_pods{queue=\"gated\"} 0",
            "scheduler_preemption_victims_total 1",
            "scheduler_scheduling_algorithm_duration_seconds_bucket{le=\"0.002\"} 0",
            "scheduler_scheduling_algorithm_duration_seconds_bucket{le=\"0.004\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{le=\"16.384\"} 1",
            "scheduler_binding_duration_seconds_count 1",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
