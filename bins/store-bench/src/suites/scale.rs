//! Scale tests: many watchers, many leases, long history, and their effect on other clients.

use crate::figures::{Measurement, Quantity};
use crate::grpc::unary;
use crate::host::server::Cluster;
use crate::host::stops::StopWatcher;
use crate::report;
use crate::workloads::calls::{self, Work, collect_calls};
use crate::workloads::leases;
use crate::workloads::watches::{Shape, Watchers};
use anyhow::{Context, Result};
use proto_etcd::etcdserverpb as pb;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const WATCHED: Duration = Duration::from_secs(20);
const LEASES: i64 = 50_000;
const KEPT: Duration = Duration::from_secs(60);
const SYNCS: &str = "etcd_disk_wal_fsync_duration_seconds_count";
/// Number of versions of 4 KiB each: 2 GB.
const VERSIONS: u64 = 500_000;
const VALUE: usize = 4 << 10;
const QUOTA: &str = "--quota-backend-bytes=8589934592";
const BEFORE: Duration = Duration::from_secs(10);
const COMPACTION: Duration = Duration::from_secs(30);
const DEFRAGMENT: &str = "/etcdserverpb.Maintenance/Defragment";

/// The scale tests.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Scale {
    /// 10,000 watchers on 1,000 streams
    Watchers,
    /// 50,000 leases of 10 s
    Leases,
    /// 2 GB of history that is compacted
    History,
}

/// Measures a new server of each kind.
pub async fn run_scale_tests(
    kinds: &[(&str, PathBuf)],
    below: &Path,
    scales: &[Scale],
) -> Result<()> {
    for scale in scales {
        let mut found = Vec::new();
        for (name, binary) in kinds {
            let more: &[&str] = if matches!(scale, Scale::History) {
                // The default quota of 2 GiB would be exceeded by the history, and puts would fail.
                &[QUOTA]
            } else {
                &[]
            };
            // A new server for each test, because memory and files of an earlier one would be
            // counted.
            let cluster = Cluster::start(name, binary, 1, below, more).await?;
            let mut notes = ServerQuantities {
                server: (*name).to_owned(),
                found: &mut found,
            };
            match scale {
                Scale::Watchers => measure_watchers(&cluster, &mut notes).await,
                Scale::Leases => measure_leases(&cluster, &mut notes).await,
                Scale::History => measure_history(&cluster, &mut notes).await,
            }
            .with_context(|| (*name).to_owned())?;
        }
        report::print_quantities(&found)?;
    }
    Ok(())
}

/// Destination of the figures of one server.
struct ServerQuantities<'a> {
    server: String,
    found: &'a mut Vec<Quantity>,
}

impl ServerQuantities<'_> {
    fn add_quantity(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.found.push(Quantity {
            server: self.server.clone(),
            what: what.into(),
            value,
            unit,
        });
    }

    fn add_latencies(&mut self, what: &str, seen: &mut Measurement, shares: &[(&str, f64)]) {
        for (name, share) in shares {
            self.add_quantity(format!("{what}: {name}"), seen.latency_at(*share), "ms");
        }
    }
}

async fn measure_watchers(cluster: &Cluster, notes: &mut ServerQuantities<'_>) -> Result<()> {
    notes.add_quantity("RSS idle", cluster.memory_mib(), "MiB");
    let watchers = Watchers::open(cluster, Shape::MANY).await?;
    notes.add_quantity(
        format!("RSS with {} watchers", Shape::MANY.total_watchers()),
        cluster.memory_mib(),
        "MiB",
    );
    let mut stalled = None;
    // Each row adds one condition to the row before, so that its effect shows in the difference.
    for (what, beside, stall) in [
        ("puts that 100 of them see", false, false),
        ("and 4 MiB/s of other puts", true, false),
        ("and a watcher of those that reads nothing", true, true),
        ("and 20 s later", true, true),
    ] {
        // The same stalled watcher in both rows, because the second one shows the growth of its
        // backlog.
        if stall && stalled.is_none() {
            stalled = Some(watchers.open_stalled().await?);
        }
        let mut seen = watchers
            .measure_deliveries(cluster, WATCHED, beside)
            .await?;
        notes.add_latencies(what, &mut seen, &[("delivery p50", 0.5), ("p99", 0.99)]);
        notes.add_quantity(
            format!("{what}: CPU"),
            100.0 * seen.server_cpu / seen.seconds,
            "%",
        );
        notes.add_quantity(format!("{what}: RSS"), cluster.memory_mib(), "MiB");
    }
    drop(stalled);
    Ok(())
}

async fn measure_leases(cluster: &Cluster, notes: &mut ServerQuantities<'_>) -> Result<()> {
    let address = cluster.first_address()?;
    notes.add_quantity("RSS idle", cluster.memory_mib(), "MiB");
    let begin = Instant::now();
    let tasks =
        leases::start_keep_alives(&address, LEASES, begin, begin + leases::GRANTED + KEPT).await?;
    let syncs = cluster.read_metric(SYNCS).await?;
    let mut seen = collect_calls(cluster, tasks).await?;
    notes.add_quantity(
        "syncs of the log in a minute of renewals",
        cluster.read_metric(SYNCS).await? - syncs,
        "",
    );
    notes.add_quantity(
        "leases after it",
        leases::count_leases(&address).await? as f64,
        "",
    );
    notes.add_quantity(
        "renewals a second",
        seen.latencies.len() as f64 / seen.seconds,
        "",
    );
    notes.add_latencies(
        "renewal",
        &mut seen,
        &[("p50", 0.5), ("p99", 0.99), ("longest", 1.0)],
    );
    notes.add_quantity("CPU", 100.0 * seen.server_cpu / seen.seconds, "%");
    notes.add_quantity("RSS", cluster.memory_mib(), "MiB");
    Ok(())
}

async fn measure_history(cluster: &Cluster, notes: &mut ServerQuantities<'_>) -> Result<()> {
    let address = cluster.first_address()?;
    let begin = Instant::now();
    calls::fill_keys(
        cluster,
        VERSIONS,
        |number| format!("{:08}", number % 1_000),
        VALUE,
    )
    .await?;
    notes.add_quantity("2 GB put", begin.elapsed().as_secs_f64(), "s");
    // Background work of the fill must not be counted as an effect of the compaction.
    sleep(BEFORE).await;
    notes.add_quantity("on disk", cluster.disk_mib(), "MiB");
    notes.add_quantity("RSS", cluster.memory_mib(), "MiB");
    measure_calls_during(cluster, notes, "before", BEFORE, async { Ok(()) }).await?;
    let request = pb::CompactionRequest {
        revision: unary::read_revision(&address).await?,
        physical: false,
    };
    let compact = async {
        unary::call_once::<pb::CompactionResponse>(&address, calls::COMPACT, &request)
            .await
            .map(drop)
    };
    let took = measure_calls_during(cluster, notes, "compaction", COMPACTION, compact).await?;
    notes.add_quantity("compaction: answered after", took.as_secs_f64() * 1e3, "ms");
    notes.add_quantity(
        "on disk 30 s after compaction began",
        cluster.disk_mib(),
        "MiB",
    );
    let request = pb::DefragmentRequest {};
    let defragment = async {
        unary::call_once::<pb::DefragmentResponse>(&address, DEFRAGMENT, &request)
            .await
            .map(drop)
    };
    let took = measure_calls_during(cluster, notes, "Defragment", BEFORE, defragment).await?;
    notes.add_quantity("Defragment: answered after", took.as_secs_f64() * 1e3, "ms");
    notes.add_quantity("on disk after Defragment", cluster.disk_mib(), "MiB");
    notes.add_quantity("RSS after Defragment", cluster.memory_mib(), "MiB");
    Ok(())
}

/// Measures the longest calls of a writing and a reading client while an operation runs, and the
/// duration of the latter.
async fn measure_calls_during(
    cluster: &Cluster,
    notes: &mut ServerQuantities<'_>,
    phase: &str,
    duration: Duration,
    action: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let timed = async {
        let begin = Instant::now();
        action.await.map(|()| begin.elapsed())
    };
    // The longest call of a minute decides. On a virtual machine it may be a stop of the host.
    let stops = StopWatcher::start_watching();
    let seen = tokio::try_join!(
        calls::measure_work(cluster, Work::Put, 1, duration),
        calls::measure_work(cluster, Work::Read, 1, duration),
        timed
    );
    let stops = stops.finish_watching();
    let (mut puts, mut reads, took) = seen?;
    let shares = [("p99", 0.99), ("longest", 1.0)];
    for (name, calls) in [("put", &mut puts), ("read", &mut reads)] {
        notes.add_latencies(&format!("{phase}: {name}"), calls, &shares);
        if let Some(longest) = stops
            .as_ref()
            .and_then(|stops| calls.longest_without_stops(stops))
        {
            notes.add_quantity(
                format!("{phase}: {name}: longest but for stops of the machine"),
                longest,
                "ms",
            );
        }
    }
    if let Some(stops) = stops {
        let lengths = stops.iter().map(|(from, to)| *to - *from);
        notes.add_quantity(
            format!("{phase}: the machine stood"),
            lengths.clone().sum::<Duration>().as_secs_f64() * 1e3,
            "ms",
        );
        let longest = lengths.max().unwrap_or_default();
        notes.add_quantity(
            format!("{phase}: the machine stood longest for"),
            longest.as_secs_f64() * 1e3,
            "ms",
        );
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_named_by_their_load_and_share() {
        let mut found = Vec::new();
        let mut quantities = ServerQuantities {
            server: "etcd".to_owned(),
            found: &mut found,
        };
        let mut measured = Measurement {
            latencies: vec![1_000, 2_000, 9_000],
            ..Measurement::default()
        };
        quantities.add_latencies("renewal", &mut measured, &[("p50", 0.5), ("longest", 1.0)]);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.what.as_str(), one.value, one.unit))
            .collect();
        assert_eq!(
            found,
            [("renewal: p50", 2.0, "ms"), ("renewal: longest", 9.0, "ms")]
        );
    }
}
