//! Memory and start time: idle, and with a million small keys.

use crate::figures::Quantity;
use crate::host::server::Cluster;
use crate::workloads::calls;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

const MILLION: u64 = 1_000_000;

/// Returns a key of 64 bytes.
fn padded_key(number: u64) -> String {
    format!("{number:064}")
}

/// Measures a new server of each kind: idle, full, and after a restart.
pub async fn measure_memory(
    kinds: &[(&str, PathBuf)],
    below: &Path,
    rounds: usize,
) -> Result<Vec<Quantity>> {
    let mut found = Vec::new();
    for (name, binary) in kinds {
        let mut cluster = Cluster::start(name, binary, 1, below, &[]).await?;
        let mut note = |what: &str, value, unit| {
            found.push(Quantity {
                server: (*name).to_owned(),
                what: what.to_owned(),
                value,
                unit,
            })
        };
        // The work after the start ends first, so that the figure is that of an idle server.
        sleep(Duration::from_secs(3)).await;
        note("RSS idle", cluster.memory_mib(), "MiB");
        let begin = std::time::Instant::now();
        calls::fill_keys(&cluster, MILLION, padded_key, 64).await?;
        note(
            "1 million keys put, 100 a transaction",
            begin.elapsed().as_secs_f64(),
            "s",
        );
        sleep(Duration::from_secs(3)).await;
        note(
            "RSS with 1 million keys of 64 + 64 bytes",
            cluster.memory_mib(),
            "MiB",
        );
        let mut best = f64::MAX;
        for _ in 0..rounds {
            // The best round: the others include noise of the machine, never less work.
            best = best.min(cluster.restart_members().await?.as_secs_f64());
        }
        note("restart with them until serving", best, "s");
        sleep(Duration::from_secs(3)).await;
        note("RSS after the restart", cluster.memory_mib(), "MiB");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_64_bytes_and_differ() {
        assert!(
            [0, 1, 999_999]
                .iter()
                .all(|number| padded_key(*number).len() == 64)
        );
        assert_ne!(padded_key(1), padded_key(10));
    }
}
