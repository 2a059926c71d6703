//! Counters and histograms of a member.

mod calls;

use base_telemetry::Histogram;
use calls::AllCalls;
pub(crate) use calls::Call;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// All counters and histograms of a member.
#[derive(Default)]
pub struct StoreMetrics {
    /// Durations of the log's syncs.
    pub wal_sync: Histogram,
    /// Durations of writes to the engine.
    pub engine_write: Histogram,
    /// Reads that waited long for the leader.
    pub slow_reads: AtomicU64,
    /// Changes of the leader.
    pub leader_changes: AtomicU64,
    /// Leases that expired.
    pub expired_leases: AtomicU64,
    /// 1 while a snapshot is being installed.
    pub installing: AtomicU64,
    /// Durations of making the state durable.
    pub snapshot_saves: Histogram,
    /// Durations of hashing all records.
    pub hash: Histogram,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) calls: AllCalls,
}

impl StoreMetrics {
    /// Counts the start of a gRPC call.
    pub(crate) fn call_started(&self, call: Call) {
        self.calls.count_started(call);
    }

    /// Counts the end of a gRPC call.
    pub(crate) fn call_handled(&self, call: Call, code: tonic::Code, took: Duration) {
        self.calls.count_handled(call, code, took);
    }

    /// Counts a read that waited for the leader.
    pub fn count_read_index(&self, slow: bool, done: bool) {
        self.slow_reads
            .fetch_add(u64::from(slow || !done), Ordering::Relaxed);
        self.failed_reads
            .fetch_add(u64::from(!done), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_read_index_counts_as_slow_too() {
        let metrics = StoreMetrics::default();
        for (slow, done) in [(false, true), (true, true), (false, false)] {
            metrics.count_read_index(slow, done);
        }
        assert_eq!(metrics.slow_reads.load(Ordering::Relaxed), 2);
        assert_eq!(metrics.failed_reads.load(Ordering::Relaxed), 1);
    }
}
