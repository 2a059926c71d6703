//! Scale tests: many watchers, many leases, long history, and their effect on other clients.

use crate::ask;
use crate::figures::{Quantity, Seen};
use crate::leases;
use crate::load::{self, Work, together};
use crate::report;
use crate::server::Cluster;
use crate::stops::Stops;
use crate::watches::{Shape, Watchers};
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
pub async fn run(kinds: &[(&str, PathBuf)], below: &Path, scales: &[Scale]) -> Result<()> {
    for scale in scales {
        let mut found = Vec::new();
        for (name, binary) in kinds {
            let more: &[&str] = if matches!(scale, Scale::History) {
                &[QUOTA]
            } else {
                &[]
            };
            let cluster = Cluster::start(name, binary, 1, below, more).await?;
            let mut notes = Notes {
                server: (*name).to_owned(),
                found: &mut found,
            };
            match scale {
                Scale::Watchers => watchers(&cluster, &mut notes).await,
                Scale::Leases => leases(&cluster, &mut notes).await,
                Scale::History => history(&cluster, &mut notes).await,
            }
            .with_context(|| (*name).to_owned())?;
        }
        report::quantities(&found)?;
    }
    Ok(())
}

/// Destination of the figures of one server.
struct Notes<'a> {
    server: String,
    found: &'a mut Vec<Quantity>,
}

impl Notes<'_> {
    fn note(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.found.push(Quantity {
            server: self.server.clone(),
            what: what.into(),
            value,
            unit,
        });
    }

    fn latencies(&mut self, what: &str, seen: &mut Seen, shares: &[(&str, f64)]) {
        for (name, share) in shares {
            self.note(format!("{what}: {name}"), seen.at(*share), "ms");
        }
    }
}

async fn watchers(cluster: &Cluster, notes: &mut Notes<'_>) -> Result<()> {
    notes.note("RSS idle", cluster.memory(), "MiB");
    let watchers = Watchers::open(cluster, Shape::MANY).await?;
    notes.note(
        format!("RSS with {} watchers", Shape::MANY.total()),
        cluster.memory(),
        "MiB",
    );
    let mut stalled = None;
    for (what, beside, stall) in [
        ("puts that 100 of them see", false, false),
        ("and 4 MiB/s of other puts", true, false),
        ("and a watcher of those that reads nothing", true, true),
        ("and 20 s later", true, true),
    ] {
        if stall && stalled.is_none() {
            stalled = Some(watchers.stalled().await?);
        }
        let mut seen = watchers.measure(cluster, WATCHED, beside).await?;
        notes.latencies(what, &mut seen, &[("delivery p50", 0.5), ("p99", 0.99)]);
        notes.note(
            format!("{what}: CPU"),
            100.0 * seen.server_cpu / seen.seconds,
            "%",
        );
        notes.note(format!("{what}: RSS"), cluster.memory(), "MiB");
    }
    drop(stalled);
    Ok(())
}

async fn leases(cluster: &Cluster, notes: &mut Notes<'_>) -> Result<()> {
    let address = cluster.first()?;
    notes.note("RSS idle", cluster.memory(), "MiB");
    let begin = Instant::now();
    let tasks = leases::keep_many(&address, LEASES, begin, begin + leases::GRANTED + KEPT).await?;
    let syncs = cluster.metric(SYNCS).await?;
    let mut seen = together(cluster, tasks).await?;
    notes.note(
        "syncs of the log in a minute of renewals",
        cluster.metric(SYNCS).await? - syncs,
        "",
    );
    notes.note("leases after it", leases::count(&address).await? as f64, "");
    notes.note(
        "renewals a second",
        seen.latencies.len() as f64 / seen.seconds,
        "",
    );
    notes.latencies(
        "renewal",
        &mut seen,
        &[("p50", 0.5), ("p99", 0.99), ("longest", 1.0)],
    );
    notes.note("CPU", 100.0 * seen.server_cpu / seen.seconds, "%");
    notes.note("RSS", cluster.memory(), "MiB");
    Ok(())
}

async fn history(cluster: &Cluster, notes: &mut Notes<'_>) -> Result<()> {
    let address = cluster.first()?;
    let begin = Instant::now();
    load::fill(
        cluster,
        VERSIONS,
        |number| format!("{:08}", number % 1_000),
        VALUE,
    )
    .await?;
    notes.note("2 GB put", begin.elapsed().as_secs_f64(), "s");
    sleep(BEFORE).await;
    notes.note("on disk", cluster.disk(), "MiB");
    notes.note("RSS", cluster.memory(), "MiB");
    longest(cluster, notes, "before", BEFORE, async { Ok(()) }).await?;
    let request = pb::CompactionRequest {
        revision: ask::revision(&address).await?,
        physical: false,
    };
    let compact = async {
        ask::ask::<pb::CompactionResponse>(&address, load::COMPACT, &request)
            .await
            .map(drop)
    };
    let took = longest(cluster, notes, "compaction", COMPACTION, compact).await?;
    notes.note("compaction: answered after", took.as_secs_f64() * 1e3, "ms");
    notes.note("on disk 30 s after compaction began", cluster.disk(), "MiB");
    let request = pb::DefragmentRequest {};
    let defragment = async {
        ask::ask::<pb::DefragmentResponse>(&address, DEFRAGMENT, &request)
            .await
            .map(drop)
    };
    let took = longest(cluster, notes, "Defragment", BEFORE, defragment).await?;
    notes.note("Defragment: answered after", took.as_secs_f64() * 1e3, "ms");
    notes.note("on disk after Defragment", cluster.disk(), "MiB");
    notes.note("RSS after Defragment", cluster.memory(), "MiB");
    Ok(())
}

/// Measures the longest calls of a writing and a reading client while an operation runs, and the
/// duration of the latter.
async fn longest(
    cluster: &Cluster,
    notes: &mut Notes<'_>,
    phase: &str,
    duration: Duration,
    action: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let timed = async {
        let begin = Instant::now();
        action.await.map(|()| begin.elapsed())
    };
    let stops = Stops::watch();
    let seen = tokio::try_join!(
        load::measure(cluster, Work::Put, 1, duration),
        load::measure(cluster, Work::Read, 1, duration),
        timed
    );
    let stops = stops.end();
    let (mut puts, mut reads, took) = seen?;
    let shares = [("p99", 0.99), ("longest", 1.0)];
    for (name, calls) in [("put", &mut puts), ("read", &mut reads)] {
        notes.latencies(&format!("{phase}: {name}"), calls, &shares);
        if let Some(longest) = stops
            .as_ref()
            .and_then(|stops| calls.longest_besides(stops))
        {
            notes.note(
                format!("{phase}: {name}: longest but for stops of the machine"),
                longest,
                "ms",
            );
        }
    }
    if let Some(stops) = stops {
        let lengths = stops.iter().map(|(from, to)| *to - *from);
        notes.note(
            format!("{phase}: the machine stood"),
            lengths.clone().sum::<Duration>().as_secs_f64() * 1e3,
            "ms",
        );
        let longest = lengths.max().unwrap_or_default();
        notes.note(
            format!("{phase}: the machine stood longest for"),
            longest.as_secs_f64() * 1e3,
            "ms",
        );
    }
    Ok(took)
}
