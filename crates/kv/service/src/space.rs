//! Files that shrink after what is in them was removed.

use crate::core::Core;
use std::sync::Arc;

/// What files may take besides data: journals, and what is not worth merging yet.
const SPARE: u64 = 256 << 20;

/// Sees to it after each compaction that leaves files far larger than the data in them.
pub(crate) async fn watch(core: Arc<Core>) {
    let mut reclaimed = core.store().reclaimed();
    while reclaimed.changed().await.is_ok() {
        if worthwhile(core.machine.disk(), core.machine.size())
            && let Err(error) = core.machine.give_back().await
        {
            tracing::error!(%error, "space can't be given back");
        }
    }
}

/// Merging reads all files and writes the data, so there must be as much to win as it costs.
fn worthwhile(disk: u64, data: u64) -> bool {
    disk.saturating_sub(SPARE) > data.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_little_more_than_the_data_stay_as_they_are() {
        assert!(!worthwhile(300 << 20, 100 << 20));
        assert!(!worthwhile(SPARE, 0));
        assert!(!worthwhile(1 << 40, u64::MAX));
        assert!(worthwhile(2 << 30, 100 << 20));
    }
}
