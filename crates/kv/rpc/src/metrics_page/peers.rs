//! Metrics of the traffic between members.

use base_telemetry::{Histogram, MetricsPage};
use kv_raft::{Directory, Traffic};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Counter = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Traffic) -> u64,
);
type Times = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Traffic) -> &Histogram,
);

fn load_counter(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

/// Name, help text, label and accessor.
const COUNTERS: [Counter; 7] = [
    (
        "etcd_network_peer_sent_bytes_total",
        "Bytes sent to members.",
        "To",
        |t| load_counter(&t.sent),
    ),
    (
        "etcd_network_peer_received_bytes_total",
        "Bytes received from members.",
        "From",
        |t| load_counter(&t.received),
    ),
    (
        "etcd_network_peer_sent_failures_total",
        "Calls to members that failed.",
        "To",
        |t| load_counter(&t.failures),
    ),
    (
        "etcd_network_snapshot_send_success",
        "States sent.",
        "To",
        |t| t.snapshots_sent.count(),
    ),
    (
        "etcd_network_snapshot_send_failures",
        "States not sent.",
        "To",
        |t| load_counter(&t.snapshots_not_sent),
    ),
    (
        "etcd_network_snapshot_receive_success",
        "States received.",
        "From",
        |t| t.snapshots_received.count(),
    ),
    (
        "etcd_network_snapshot_receive_failures",
        "States not received.",
        "From",
        |t| load_counter(&t.snapshots_not_received),
    ),
];

const TIMES: [Times; 3] = [
    (
        "etcd_network_peer_round_trip_time_seconds",
        "Time of calls to members.",
        "To",
        |t| &t.round_trips,
    ),
    (
        "etcd_network_snapshot_send_total_duration_seconds",
        "Time to send states.",
        "To",
        |t| &t.snapshots_sent,
    ),
    (
        "etcd_network_snapshot_receive_total_duration_seconds",
        "Time to receive.",
        "From",
        |t| &t.snapshots_received,
    ),
];

pub(super) fn write_peer_metrics(page: &mut MetricsPage, member: u64, directory: &Directory) {
    let all = directory.all_traffic();
    // The member itself is left out: calls to it need no network and would distort averages.
    let others: Vec<(&u64, &Arc<Traffic>)> = all.iter().filter(|(id, _)| **id != member).collect();
    for (name, help, label, count) in COUNTERS {
        page.head(name, "counter", help);
        for (id, traffic) in &others {
            page.sample(name, &format!("{label}=\"{id:x}\""), count(traffic) as f64);
        }
    }
    for (name, help, label, times) in TIMES {
        page.head(name, "histogram", help);
        for (id, traffic) in &others {
            page.histogram(name, &format!("{label}=\"{id:x}\""), times(traffic));
        }
    }
    let labels = |id: u64| format!("Local=\"{member:x}\",Remote=\"{id:x}\"");
    page.head("etcd_network_active_peers", "gauge", "Members that answer.");
    for (id, _) in &others {
        let active = directory
            .health(**id)
            .is_some_and(|health| health.active_since.is_some());
        page.sample(
            "etcd_network_active_peers",
            &labels(**id),
            f64::from(u8::from(active)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn page(directory: &Directory) -> String {
        let mut page = MetricsPage::default();
        write_peer_metrics(&mut page, 0xa, directory);
        page.finish()
    }

    #[test]
    fn page_has_the_other_members_in_hexadecimal() {
        let directory = Directory::new();
        let urls = |port: u32| vec![format!("http://h:{port}")];
        directory.replace_addresses(HashMap::from([(0xa, urls(1)), (0xb, urls(2))]));
        for member in [0xa, 0xb] {
            if let Some(traffic) = directory.traffic(member) {
                traffic.sent.fetch_add(5, Ordering::Relaxed);
            }
        }
        let page = page(&directory);
        assert!(
            page.contains("etcd_network_peer_sent_bytes_total{To=\"b\"} 5"),
            "{page}"
        );
        assert!(!page.contains("{To=\"a\"}"), "{page}");
        let active = "etcd_network_active_peers{Local=\"a\",Remote=\"b\"} 0";
        assert!(page.contains(active), "{page}");
    }
}
