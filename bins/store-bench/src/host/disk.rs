//! Latency of the disk itself: the lower bound for any store.

use anyhow::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const SYNCS: u64 = 300;
const WRITE: [u8; 400] = [7; 400];

/// Returns median, mean and 99th percentile of `fdatasync` after a small write, in milliseconds:
/// for a growing file, or for one whose blocks were written before.
pub fn sync_latency(folder: &Path, written_before: bool) -> Result<[f64; 3]> {
    let file = tempfile::tempfile_in(folder)?;
    // Blocks that were never written cost the file system a journal entry at the first sync.
    if written_before {
        file.write_all_at(&vec![0; WRITE.len() * SYNCS as usize], 0)?;
        file.sync_all()?;
    }
    let mut took = Vec::new();
    for number in 0..SYNCS {
        file.write_all_at(&WRITE, number * WRITE.len() as u64)?;
        let begin = Instant::now();
        file.sync_data()?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    let at = |share: f64| {
        took.get((took.len() as f64 * share) as usize)
            .copied()
            .unwrap_or_default()
    };
    Ok([
        at(0.5),
        took.iter().sum::<f64>() / took.len() as f64,
        at(0.99),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn latency_of_the_disk_has_ordered_percentiles() {
        let folder = tempfile::tempdir().unwrap();
        let [p50, mean, p99] = sync_latency(folder.path(), true).unwrap();
        assert!(p50 > 0.0 && mean > 0.0 && p50 <= p99, "{p50} {mean} {p99}");
    }
}
