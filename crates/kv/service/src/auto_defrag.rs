//! Automatic defragmentation.

use kv_rpc::ServerContext;
use std::sync::Arc;

/// Overhead in bytes that is tolerated: journals, and files that are not worth merging yet.
const SPARE: u64 = 256 << 20;

/// Defragments after a compaction that leaves files much larger than the data.
pub(crate) async fn watch_free_space(core: Arc<ServerContext>) {
    let mut reclaimed = core.store().subscribe_reclaimed();
    while reclaimed.changed().await.is_ok() {
        if is_worthwhile(core.machine.disk_size(), core.machine.data_size())
            && let Err(error) = core.machine.release_space().await
        {
            tracing::error!(%error, "defragmenting failed");
        }
    }
}

/// Returns whether to defragment. Merging reads all files and rewrites the data, so the gain must
/// justify that.
fn is_worthwhile(disk: u64, data: u64) -> bool {
    disk.saturating_sub(SPARE) > data.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_little_more_than_the_data_stay_as_they_are() {
        assert!(!is_worthwhile(300 << 20, 100 << 20));
        assert!(!is_worthwhile(SPARE, 0));
        assert!(!is_worthwhile(1 << 40, u64::MAX));
        assert!(is_worthwhile(2 << 30, 100 << 20));
    }
}
