//! What is counted and timed, under etcd's names where the meaning is the same.

use crate::core::Core;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BOUNDS: [f64; 14] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192];

/// Durations in buckets.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; 14],
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound).and_then(|at| self.buckets.get(at)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    fn write(&self, page: &mut Page, name: &str, help: &str) {
        page.head(name, help, "histogram");
        let mut total = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            total += bucket.load(Ordering::Relaxed);
            page.line(&format!("{name}_bucket{{le=\"{bound}\"}}"), total as f64);
        }
        let count = self.count.load(Ordering::Relaxed) as f64;
        page.line(&format!("{name}_bucket{{le=\"+Inf\"}}"), count);
        page.line(&format!("{name}_sum"), self.micros.load(Ordering::Relaxed) as f64 / 1e6);
        page.line(&format!("{name}_count"), count);
    }
}

/// A method, by its place in `METHODS`; one past the end: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call(usize);

/// The methods of etcd's API, the frequent ones first. Names come from outside: what is not known is counted together.
const METHODS: [&str; 49] = [
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberAdd",
    "/etcdserverpb.Cluster/MemberRemove",
    "/etcdserverpb.Cluster/MemberUpdate",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Cluster/MemberPromote",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/Defragment",
    "/etcdserverpb.Maintenance/Hash",
    "/etcdserverpb.Maintenance/HashKV",
    "/etcdserverpb.Maintenance/Snapshot",
    "/etcdserverpb.Maintenance/MoveLeader",
    "/etcdserverpb.Maintenance/Downgrade",
    "/etcdserverpb.Auth/AuthEnable",
    "/etcdserverpb.Auth/AuthDisable",
    "/etcdserverpb.Auth/AuthStatus",
    "/etcdserverpb.Auth/Authenticate",
    "/etcdserverpb.Auth/UserAdd",
    "/etcdserverpb.Auth/UserGet",
    "/etcdserverpb.Auth/UserList",
    "/etcdserverpb.Auth/UserDelete",
    "/etcdserverpb.Auth/UserChangePassword",
    "/etcdserverpb.Auth/UserGrantRole",
    "/etcdserverpb.Auth/UserRevokeRole",
    "/etcdserverpb.Auth/RoleAdd",
    "/etcdserverpb.Auth/RoleGet",
    "/etcdserverpb.Auth/RoleList",
    "/etcdserverpb.Auth/RoleDelete",
    "/etcdserverpb.Auth/RoleGrantPermission",
    "/etcdserverpb.Auth/RoleRevokePermission",
    "/v3lockpb.Lock/Lock",
    "/v3lockpb.Lock/Unlock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Proclaim",
    "/v3electionpb.Election/Leader",
    "/v3electionpb.Election/Observe",
    "/v3electionpb.Election/Resign",
    "/unknown/unknown",
];

/// As Go's library names them in labels, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// Calls that have ended, by method and code.
struct Handled([[AtomicU64; CODES.len()]; METHODS.len()]);

impl Default for Handled {
    fn default() -> Self {
        Handled(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

/// Everything that is counted.
#[derive(Default)]
pub(crate) struct Meters {
    pub wal_sync: Histogram,
    pub engine_write: Histogram,
    pub received: AtomicU64,
    pub sent: AtomicU64,
    pub slow_reads: AtomicU64,
    pub leader_changes: AtomicU64,
    pub expired_leases: AtomicU64,
    handled: Handled,
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
    fn line(&mut self, name: &str, value: f64) {
        let _ = writeln!(self.0, "{name} {value}");
    }
    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.line(name, value);
    }
    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "counter");
        self.line(name, value);
    }
}

impl Meters {
    /// The method with this path.
    pub fn call(path: &str) -> Call {
        Call(METHODS.iter().position(|method| *method == path).unwrap_or(METHODS.len() - 1))
    }

    /// A gRPC call has ended.
    pub fn handled(&self, call: Call, code: tonic::Code) {
        let count = self.handled.0.get(call.0).and_then(|codes| codes.get(code as usize));
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The page for Prometheus.
    pub fn page(&self, core: &Core) -> String {
        let mut page = Page(String::with_capacity(16 << 10));
        self.raft(&mut page, core);
        self.store(&mut page, core);
        self.wal_sync.write(&mut page, "etcd_disk_wal_fsync_duration_seconds", "Time of a sync of the log.");
        self.engine_write.write(
            &mut page,
            "etcd_disk_backend_commit_duration_seconds",
            "Time of a write to the engine.",
        );
        self.network(&mut page);
        process(&mut page);
        page.0
    }

    fn raft(&self, page: &mut Page, core: &Core) {
        let status = core.node.status();
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        let flag = |value: bool| f64::from(u8::from(value));
        page.gauge("etcd_server_has_leader", "Whether there is a leader.", flag(status.leader.is_some()));
        page.gauge("etcd_server_is_leader", "Whether this member leads.", flag(status.leading));
        page.gauge("etcd_server_is_learner", "Whether this member has no vote.", flag(core.is_learner()));
        page.counter("etcd_server_leader_changes_seen_total", "Changes of leader seen.", count(&self.leader_changes));
        page.gauge(
            "etcd_server_proposals_committed_total",
            "Entries committed.",
            status.committed.max(status.applied) as f64,
        );
        page.gauge("etcd_server_proposals_applied_total", "Entries applied.", status.applied as f64);
        page.gauge("etcd_server_proposals_pending", "Commands under way.", status.pending as f64);
        page.counter("etcd_server_proposals_failed_total", "Commands that came to nothing.", status.failed as f64);
        page.counter(
            "etcd_server_slow_read_indexes_total",
            "Reads that waited long for the leader.",
            count(&self.slow_reads),
        );
        page.gauge("etcd_server_quota_backend_bytes", "Space that data may take.", core.bounds.quota as f64);
        page.head("etcd_server_version", "Version of the API.", "gauge");
        page.line(&format!("etcd_server_version{{server_version=\"{}\"}}", crate::settings::API_VERSION), 1.0);
        page.head("etcd_server_id", "This member.", "gauge");
        page.line(&format!("etcd_server_id{{server_id=\"{:x}\"}}", core.identity.member), 1.0);
    }

    fn store(&self, page: &mut Page, core: &Core) {
        let size = core.machine.size() as f64;
        let sizes = core.store().sizes();
        page.gauge("etcd_mvcc_db_total_size_in_bytes", "Bytes that data take.", size);
        page.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of it in use.", size);
        page.gauge("kvstore_engine_disk_bytes", "Bytes that the engine's files take.", core.machine.disk() as f64);
        page.gauge("etcd_debugging_mvcc_keys_total", "Keys.", sizes.keys as f64);
        page.gauge("etcd_debugging_mvcc_current_revision", "Present revision.", core.store().revision() as f64);
        page.gauge("etcd_debugging_mvcc_compact_revision", "Compacted revision.", core.store().compacted() as f64);
        page.gauge("etcd_debugging_mvcc_watcher_total", "Watchers.", core.hub.watchers() as f64);
        page.gauge("etcd_debugging_mvcc_watch_stream_total", "Streams of watchers.", core.hub.streams() as f64);
        page.gauge("kvstore_history_bytes", "Bytes of newest revisions in memory.", sizes.history_bytes as f64);
        let leases = core.machine.leases(|leases| leases.len());
        page.gauge("kvstore_leases", "Leases.", leases as f64);
        let expired = self.expired_leases.load(Ordering::Relaxed) as f64;
        page.counter("etcd_debugging_server_lease_expired_total", "Leases that ended by themselves.", expired);
    }

    fn network(&self, page: &mut Page) {
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        page.counter(
            "etcd_network_client_grpc_received_bytes_total",
            "Bytes received from clients.",
            count(&self.received),
        );
        page.counter("etcd_network_client_grpc_sent_bytes_total", "Bytes sent to clients.", count(&self.sent));
        page.head("grpc_server_handled_total", "Calls that have ended.", "counter");
        for (path, codes) in METHODS.iter().zip(&self.handled.0) {
            let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
            for (code, calls) in CODES.iter().zip(codes) {
                let calls = count(calls);
                if calls > 0.0 {
                    let labels = format!("grpc_code=\"{code}\",grpc_method=\"{method}\",grpc_service=\"{service}\"");
                    page.line(&format!("grpc_server_handled_total{{{labels}}}"), calls);
                }
            }
        }
    }
}

fn process(page: &mut Page) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    page.gauge("process_resident_memory_bytes", "Resident memory.", pages * 4096.0);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| after.split(' ').nth(at).and_then(|n| n.parse::<f64>().ok()).unwrap_or_default();
    page.counter("process_cpu_seconds_total", "Processor time.", (ticks(12) + ticks(13)) / 100.0);
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    page.gauge("process_open_fds", "Open files.", files as f64);
}
