//! Counters and histograms of a member.

mod calls;

use calls::AllCalls;
pub(crate) use calls::Call;
use base_telemetry::Histogram;
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
    pub(crate) fn started(&self, call: Call) {
        self.calls.started(call);
    }

    /// Counts the end of a gRPC call.
    pub(crate) fn handled(&self, call: Call, code: tonic::Code, took: Duration) {
        self.calls.handled(call, code, took);
    }

    /// Counts a read that waited for the leader.
    pub fn read_index(&self, slow: bool, done: bool) {
        self.slow_reads
            .fetch_add(u64::from(slow || !done), Ordering::Relaxed);
        self.failed_reads
            .fetch_add(u64::from(!done), Ordering::Relaxed);
    }
}
