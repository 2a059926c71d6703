//! Metrics under the names of upstream's kube-proxy. One transaction changes the tables of both
//! families, so it counts for each of them.

use std::fmt::Error;
use std::time::Duration;

use base_telemetry::prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use base_telemetry::prometheus_client::metrics::MetricType;
use base_telemetry::prometheus_client::metrics::counter::Counter;
use base_telemetry::prometheus_client::metrics::family::Family as Labelled;
use base_telemetry::prometheus_client::metrics::gauge::Gauge;
use base_telemetry::{Histogram, Metrics};
use jiff::Timestamp;
use net_nft::Family;

use crate::service_rules::ServiceRules;
use crate::settings::Mode;

/// Bounds of the duration of a sync, in seconds: from 1 ms, doubling 14 times.
const SYNC_DURATIONS: [f64; 15] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192, 16.384,
];
/// Bounds of the time from the change of a pod to its rules, in seconds: upstream's.
const PROGRAMMING_DURATIONS: [f64; 80] = programming_durations();

const fn programming_durations() -> [f64; 80] {
    let mut bounds = [0.25; 80];
    bounds[1] = 0.5;
    let mut at = 2;
    while at < bounds.len() {
        bounds[at] = match at {
            2..61 => (at - 1) as f64,
            61..73 => (60 + 5 * (at - 61)) as f64,
            _ => (120 + 30 * (at - 73)) as f64,
        };
        at += 1;
    }
    bounds
}

type FamilyLabel = [(&'static str, &'static str); 1];
type PolicyLabels = [(&'static str, &'static str); 2];

/// A histogram for each family.
#[derive(Clone, Debug)]
pub(crate) struct FamilyHistogram {
    v4: Histogram,
    v6: Histogram,
}

impl FamilyHistogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            v4: Histogram::new(bounds),
            v6: Histogram::new(bounds),
        }
    }

    pub(crate) fn of_family(&self, family: Family) -> &Histogram {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

impl EncodeMetric for FamilyHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), Error> {
        for family in [Family::V4, Family::V6] {
            let histogram = self.of_family(family);
            // As upstream, a family without values has no lines.
            if histogram.count() > 0 {
                histogram.encode(encoder.encode_family(&family_label(family))?)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn family_label(family: Family) -> FamilyLabel {
    [("ip_family", family.api_name())]
}

/// Metrics of changes that the informers receive.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangeMetrics {
    pub(crate) services: Counter,
    pub(crate) services_pending: Gauge,
    pub(crate) endpoints: Counter,
    pub(crate) endpoints_pending: Gauge,
}

impl ChangeMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let new = Self::default();
        let named = |name: &str| format!("kubeproxy_sync_proxy_rules_{name}");
        let name = named("service_changes");
        metrics.register(&name, "Changes of Services", new.services.clone());
        let name = named("service_changes_pending");
        let help = "Changes of Services that are not applied yet";
        metrics.register(&name, help, new.services_pending.clone());
        let name = named("endpoint_changes");
        metrics.register(&name, "Changes of EndpointSlices", new.endpoints.clone());
        let name = named("endpoint_changes_pending");
        let help = "Changes of EndpointSlices that are not applied yet";
        metrics.register(&name, help, new.endpoints_pending.clone());
        new
    }
}

/// Metrics of syncs.
pub(crate) struct ProxyMetrics {
    /// Syncs, of any kind.
    pub(crate) syncs: Counter,
    failures: Labelled<FamilyLabel, Counter>,
    cleanup_failures: Labelled<FamilyLabel, Counter>,
    duration: FamilyHistogram,
    full: FamilyHistogram,
    partial: FamilyHistogram,
    programming: FamilyHistogram,
    applied: Labelled<FamilyLabel, Gauge>,
    queued: Labelled<FamilyLabel, Gauge>,
    no_local: Labelled<PolicyLabels, Gauge>,
    conntrack: FamilyHistogram,
    connections: Labelled<FamilyLabel, Counter>,
}

impl ProxyMetrics {
    pub(crate) fn new(metrics: &Metrics, mode: &Mode) -> Self {
        let histogram = |name: &str, help: &str, bounds: &'static [f64]| {
            let name = format!("kubeproxy_{name}_duration_seconds");
            metrics.register(&name, help, FamilyHistogram::new(bounds))
        };
        let sync = |name: &str, help: &str| histogram(name, help, &SYNC_DURATIONS);
        let counter = |name: &str, help: &str| {
            let name = format!("kubeproxy_sync_proxy_rules_{name}");
            metrics.register(&name, help, Labelled::default())
        };
        let gauge = |name: &str, help: &str| {
            let name = format!("kubeproxy_sync_proxy_rules_{name}");
            metrics.register(&name, help, Labelled::default())
        };
        let (failures, cleanup_failures) = match mode {
            Mode::Nftables => ("nftables_sync_failures", "nftables_cleanup_failures"),
            // Upstream has no removal of its own in this mode.
            Mode::Iptables { .. } => ("iptables_restore_failures", "iptables_cleanup_failures"),
        };
        Self {
            syncs: metrics.register("kubeproxy_sync_proxy_rules", "Syncs", Counter::default()),
            failures: counter(failures, "Syncs that failed"),
            cleanup_failures: counter(cleanup_failures, "Removals of unused chains that failed"),
            duration: sync("sync_proxy_rules", "Duration of syncs"),
            full: sync("sync_full_proxy_rules", "Duration of syncs of all rules"),
            partial: sync("sync_partial_proxy_rules", "Duration of syncs of changes"),
            programming: histogram(
                "network_programming",
                "Time from the change of a pod or Service to its rules",
                &PROGRAMMING_DURATIONS,
            ),
            applied: gauge("last_timestamp_seconds", "Time of the last sync"),
            queued: gauge("last_queued_timestamp_seconds", "Time of the last change"),
            no_local: metrics.register(
                "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
                "Ports of Services with a Local policy that have endpoints on other nodes only",
                Labelled::default(),
            ),
            conntrack: sync(
                "conntrack_reconciler_sync",
                "Duration of conntrack cleanups",
            ),
            connections: metrics.register(
                "kubeproxy_conntrack_reconciler_deleted_entries",
                "Entries of removed endpoints that were deleted",
                Labelled::default(),
            ),
        }
    }

    /// Records that a sync begins.
    pub(crate) fn record_queued(&self, families: &[Family]) {
        set_now(&self.queued, families);
    }

    pub(crate) fn record_sync(&self, families: &[Family], whole: bool, took: Duration) {
        self.syncs.inc();
        let kind = if whole { &self.full } else { &self.partial };
        for family in families {
            self.duration.of_family(*family).observe_duration(took);
            kind.of_family(*family).observe_duration(took);
        }
        set_now(&self.applied, families);
    }

    pub(crate) fn record_failure(&self, families: &[Family]) {
        count(&self.failures, families);
    }

    pub(crate) fn record_cleanup_failure(&self, families: &[Family]) {
        count(&self.cleanup_failures, families);
    }

    /// Records the time from a change of a pod or Service until now.
    pub(crate) fn record_programming(&self, family: Family, since: Timestamp) {
        let took = since.duration_until(Timestamp::now());
        let histogram = self.programming.of_family(family);
        histogram.observe(took.as_secs_f64().max(0.0));
    }

    /// Records a conntrack cleanup with the number of deleted entries.
    pub(crate) fn record_conntrack(&self, deleted: &[(Family, u64)], took: Duration) {
        for (family, count) in deleted {
            self.conntrack.of_family(*family).observe_duration(took);
            let counter = self.connections.get_or_create(&family_label(*family));
            counter.inc_by(*count);
        }
    }

    /// Counts the Local policies without an endpoint here, after a change of a Service's rules.
    pub(crate) fn update_no_local(&self, before: &ServiceRules, now: &ServiceRules) {
        for (rules, amount) in [(before, -1), (now, 1)] {
            for (family, policy) in &rules.no_local {
                let [label] = family_label(*family);
                let labels = [("traffic_policy", *policy), label];
                self.no_local.get_or_create(&labels).inc_by(amount);
            }
        }
    }

    /// Removes the counts of Local policies before all Services are counted again.
    pub(crate) fn clear_no_local(&self) {
        self.no_local.clear();
    }
}

fn set_now(gauge: &Labelled<FamilyLabel, Gauge>, families: &[Family]) {
    let now = Timestamp::now().as_second();
    for family in families {
        gauge.get_or_create(&family_label(*family)).set(now);
    }
}

fn count(counter: &Labelled<FamilyLabel, Counter>, families: &[Family]) {
    for family in families {
        counter.get_or_create(&family_label(*family)).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_upstreams() {
        let bounds = PROGRAMMING_DURATIONS;
        assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        for (at, expect) in [
            (0, 0.25),
            (2, 1.0),
            (60, 59.0),
            (61, 60.0),
            (72, 115.0),
            (73, 120.0),
        ] {
            assert_eq!(bounds[at], expect, "{at}");
        }
        assert_eq!(bounds[79], 300.0);
    }

    #[test]
    fn page_has_upstreams_names_and_labels() {
        let registry = Metrics::new();
        let figures = ProxyMetrics::new(&registry, &Mode::Nftables);
        let changes = ChangeMetrics::new(&registry);
        changes.services.inc();
        changes.endpoints_pending.set(2);
        let families = [Family::V4];
        figures.record_queued(&families);
        figures.record_sync(&families, true, Duration::from_millis(3));
        figures.record_sync(&[Family::V6], false, Duration::from_millis(3));
        figures.record_failure(&families);
        figures.record_cleanup_failure(&families);
        figures.record_programming(Family::V6, Timestamp::now());
        let local = ServiceRules {
            no_local: vec![(Family::V4, "external")],
            ..ServiceRules::default()
        };
        figures.update_no_local(&ServiceRules::default(), &local);
        figures.record_conntrack(&[(Family::V6, 3)], Duration::from_millis(3));
        let page = registry.encode();
        for line in [
            "conntrack_reconciler_deleted_entries_total{ip_family=\"IPv6\"} 3",
            "conntrack_reconciler_sync_duration_seconds_count{ip_family=\"IPv6\"} 1",
            "sync_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
            "sync_proxy_rules_duration_seconds_bucket{le=\"0.004\",ip_family=\"IPv6\"} 1",
            "sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1",
            "sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv6\"} 1",
            "network_programming_duration_seconds_bucket{le=\"0.25\",ip_family=\"IPv6\"} 1",
            "sync_proxy_rules_nftables_sync_failures_total{ip_family=\"IPv4\"} 1",
            "sync_proxy_rules_nftables_cleanup_failures_total{ip_family=\"IPv4\"} 1",
            "sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"external\",ip_family=\"IPv4\"} 1",
            "sync_proxy_rules_service_changes_total 1",
            "sync_proxy_rules_service_changes_pending 0",
            "sync_proxy_rules_endpoint_changes_total 0",
            "sync_proxy_rules_endpoint_changes_pending 2",
        ] {
            assert!(
                page.contains(&format!("\nkubeproxy_{line}\n")),
                "{line}: {page}"
            );
        }
        for name in ["last_timestamp", "last_queued_timestamp"] {
            let line = format!("kubeproxy_sync_proxy_rules_{name}_seconds{{ip_family=\"IPv4\"}} 1");
            assert!(page.contains(&line), "{page}");
        }
        figures.update_no_local(&local, &ServiceRules::default());
        assert!(
            registry
                .encode()
                .contains("traffic_policy=\"external\",ip_family=\"IPv4\"} 0")
        );
    }
}
