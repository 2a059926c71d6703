//! Soak test: overwrites at full speed with regular compactions, to find anything that grows
//! although the live data do not.

use crate::grpc::unary;
use crate::host::server::Cluster;
use crate::report::print_line;
use crate::workloads::calls::{self, KEYS, VALUE, Work};
use anyhow::Result;
use proto_etcd::etcdserverpb as pb;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CLIENTS: usize = 100;
/// Interval between compactions.
const STEP: Duration = Duration::from_secs(5);
/// Number of revisions that a compaction leaves.
const KEPT: i64 = 1_000;
/// Interval between lines of the table.
const LINE: Duration = Duration::from_secs(60);
/// Size in bytes of the live keys and values.
const LIVE: f64 = KEYS as f64 * (8 + VALUE) as f64;

/// Measurements between two lines.
#[derive(Default)]
struct Window {
    puts: usize,
    worst_p99: f64,
    memory: f64,
    disk: f64,
}

/// Overwrites the keys of a new server of each kind, and prints one line per minute.
pub async fn run_soak(kinds: &[(&str, PathBuf)], below: &Path, duration: Duration) -> Result<()> {
    print_line(
        "| server | minutes | puts | worst p99 of 5 s, ms | RSS, MiB | on disk, MiB | on disk / live data |",
    )?;
    print_line("|---|---|---|---|---|---|---|")?;
    for (name, binary) in kinds {
        let cluster = Cluster::start(name, binary, 1, below, &[]).await?;
        calls::fill_keys(&cluster, KEYS, |number| format!("{number:08}"), VALUE).await?;
        let begin = Instant::now();
        let mut lines = 0;
        let mut window = Window::default();
        while begin.elapsed() < duration {
            let seen = calls::measure_work(&cluster, Work::Put, CLIENTS, STEP)
                .await?
                .into_figure(name, 1, "put", CLIENTS);
            // After the round and not during it: the latency of puts beside a compaction is a test
            // of its own.
            compact_history(&cluster).await?;
            window.puts += seen.count as usize;
            // The worst of the window: an average would hide a stall that grows.
            window.worst_p99 = window.worst_p99.max(seen.p99_ms);
            window.memory = window.memory.max(cluster.memory_mib());
            window.disk = window.disk.max(cluster.disk_mib());
            if begin.elapsed() >= LINE * (lines + 1) || begin.elapsed() >= duration {
                lines += 1;
                print_window(name, begin.elapsed(), &std::mem::take(&mut window))?;
            }
        }
    }
    Ok(())
}

fn print_window(name: &str, elapsed: Duration, window: &Window) -> Result<()> {
    let Window {
        puts,
        worst_p99,
        memory,
        disk,
    } = window;
    let (minutes, ratio) = (
        elapsed.as_secs_f64() / 60.0,
        disk * f64::from(1 << 20) / LIVE,
    );
    print_line(&format!(
        "| {name} | {minutes:.0} | {puts} | {worst_p99:.1} | {memory:.0} | {disk:.0} | {ratio:.1} |"
    ))
}

async fn compact_history(cluster: &Cluster) -> Result<()> {
    let address = cluster.first_address()?;
    let present = unary::read_revision(&address).await?;
    let request = pb::CompactionRequest {
        // Without compaction the history grows by design, and nothing else could be seen.
        revision: present - KEPT,
        physical: false,
    };
    unary::call_once::<pb::CompactionResponse>(&address, calls::COMPACT, &request)
        .await
        .map(drop)
}
