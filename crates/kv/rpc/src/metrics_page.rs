//! The metrics page, under etcd's names if the meaning is the same.

mod peers;

use crate::context::ServerContext;
use crate::histogram::write_histogram;
use base_telemetry::{FileDescriptors, MetricsPage};
use kv_config::{API_VERSION, CLUSTER_VERSION};
use kv_raft::Status;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the metrics page in Prometheus' text format.
pub fn metrics_page(core: &ServerContext) -> String {
    let mut page = MetricsPage::default();
    write_raft(&mut page, core);
    write_store(&mut page, core);
    write_histogram(
        &mut page,
        "etcd_disk_wal_fsync_duration_seconds",
        "Time of a sync of the log.",
        &core.metrics.wal_sync,
    );
    write_histogram(
        &mut page,
        "etcd_disk_backend_commit_duration_seconds",
        "Time of a write to the engine.",
        &core.metrics.engine_write,
    );
    write_histogram(
        &mut page,
        "etcd_debugging_snap_save_total_duration_seconds",
        "Time to make the state durable before the log is cut.",
        &core.metrics.snapshot_saves,
    );
    write_histogram(
        &mut page,
        "etcd_mvcc_hash_rev_duration_seconds",
        "Time to hash all records up to a revision.",
        &core.metrics.hash,
    );
    write_network(&mut page, core);
    let ends = base_task::blocking(|| core.certificates.read_expirations());
    page.add_certificate_expirations(&ends);
    let files = FileDescriptors::read();
    page.write_process(files);
    page.gauge("os_fd_used", "Open files.", files.open);
    page.gauge("os_fd_limit", "Files that may be open.", files.max);
    page.finish()
}

fn write_raft(page: &mut MetricsPage, core: &ServerContext) {
    // One status for all values, so that a page never shows a leader of one term with the index of
    // another.
    let status = core.node.status();
    write_leadership(page, core, &status);
    write_proposals(page, &status);
    write_server_health(page, core, &status);
    write_identity(page, core);
}

fn read_count(value: &AtomicU64) -> f64 {
    value.load(Ordering::Relaxed) as f64
}

fn write_leadership(page: &mut MetricsPage, core: &ServerContext, status: &Status) {
    let flag = |value: bool| f64::from(u8::from(value));
    page.gauge(
        "etcd_server_has_leader",
        "Whether there is a leader.",
        flag(status.has_leader),
    );
    // Gauges and counters have etcd's types, even odd ones: dashboards choose their functions by
    // them.
    page.gauge(
        "etcd_server_is_leader",
        "Whether this member leads.",
        // etcd's leader steps down without a quorum.
        flag(status.leading && status.has_leader),
    );
    page.gauge(
        "etcd_server_is_learner",
        "Whether this member has no vote.",
        flag(core.is_learner()),
    );
    page.counter(
        "etcd_server_leader_changes_seen_total",
        "Changes of leader seen.",
        read_count(&core.metrics.leader_changes),
    );
}

fn write_proposals(page: &mut MetricsPage, status: &Status) {
    page.gauge(
        "etcd_server_proposals_committed_total",
        "Entries committed.",
        // The applied index is read separately and may be ahead; dashboards subtract the two and
        // expect no negative number.
        status.committed.max(status.applied) as f64,
    );
    page.gauge(
        "etcd_server_proposals_applied_total",
        "Entries applied.",
        status.applied as f64,
    );
    page.gauge(
        "etcd_server_proposals_pending",
        "Commands under way.",
        status.pending as f64,
    );
    page.counter(
        "etcd_server_proposals_failed_total",
        "Commands that failed.",
        status.failed as f64,
    );
}

/// Writes the quota, and counts of slow and failed work.
fn write_server_health(page: &mut MetricsPage, core: &ServerContext, status: &Status) {
    page.counter(
        "etcd_server_slow_read_indexes_total",
        "Reads that waited long for the leader.",
        read_count(&core.metrics.slow_reads),
    );
    page.gauge(
        "etcd_server_quota_backend_bytes",
        "Space that data may take.",
        core.bounds.quota as f64,
    );
    page.counter(
        "etcd_server_read_indexes_failed_total",
        "Reads that failed.",
        read_count(&core.metrics.failed_reads),
    );
    page.counter(
        "etcd_server_slow_apply_total",
        "Commands that took longer to be applied than --warning-apply-duration.",
        core.machine.slow_applies() as f64,
    );
    page.counter(
        "etcd_server_heartbeat_send_failures_total",
        "Heartbeats that this member sent much too late.",
        status.late_heartbeats as f64,
    );
    page.gauge(
        "etcd_server_snapshot_apply_in_progress_total",
        "Whether a state from the leader is being installed.",
        read_count(&core.metrics.installing),
    );
}

fn write_identity(page: &mut MetricsPage, core: &ServerContext) {
    page.info(
        "etcd_server_version",
        "Version of the API.",
        "server_version",
        API_VERSION,
    );
    page.info(
        "etcd_cluster_version",
        "Version of the cluster.",
        "cluster_version",
        CLUSTER_VERSION,
    );
    page.info(
        "etcd_server_id",
        "This member.",
        "server_id",
        &format!("{:x}", core.identity.member),
    );
}

fn write_store(page: &mut MetricsPage, core: &ServerContext) {
    // Two sizes as in etcd: alerts on fragmentation compare the size in use with that of the files.
    let size = core.machine.data_size() as f64;
    let sizes = core.store().sizes();
    let disk = core.machine.disk_size() as f64;
    page.gauge(
        "etcd_mvcc_db_total_size_in_bytes",
        "Bytes that the engine's files take.",
        disk,
    );
    page.gauge(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        "Bytes that keys and their history take.",
        size,
    );
    page.gauge(
        "kvstore_engine_disk_bytes",
        "Bytes that the engine's files take.",
        disk,
    );
    write_operations(page, core);
    page.gauge("etcd_debugging_mvcc_keys_total", "Keys.", sizes.keys as f64);
    page.gauge(
        "etcd_debugging_mvcc_current_revision",
        "Present revision.",
        core.store().current_revision() as f64,
    );
    page.gauge(
        "etcd_debugging_mvcc_compact_revision",
        "Compacted revision.",
        core.store().compacted_revision() as f64,
    );
    write_watchers(page, core);
    page.gauge(
        "kvstore_history_bytes",
        "Bytes of newest revisions in memory.",
        sizes.history_bytes as f64,
    );
    write_leases(page, core);
}

fn write_watchers(page: &mut MetricsPage, core: &ServerContext) {
    let hub = core.hub.sizes();
    page.gauge(
        "etcd_debugging_mvcc_watcher_total",
        "Watchers.",
        (hub.synced + hub.unsynced) as f64,
    );
    page.gauge(
        "etcd_debugging_mvcc_slow_watcher_total",
        "Watchers that are behind.",
        hub.unsynced as f64,
    );
    page.gauge(
        "etcd_debugging_mvcc_watch_stream_total",
        "Streams of watchers.",
        hub.streams as f64,
    );
    page.gauge(
        "etcd_debugging_mvcc_pending_events_total",
        "Events that wait to be sent.",
        hub.waiting as f64,
    );
    page.counter(
        "etcd_debugging_mvcc_events_total",
        "Events sent to watchers.",
        hub.sent as f64,
    );
}

fn write_leases(page: &mut MetricsPage, core: &ServerContext) {
    let leases = core.machine.with_leases(|leases| leases.len());
    page.gauge("kvstore_leases", "Leases.", leases as f64);
    let expired = core.metrics.expired_leases.load(Ordering::Relaxed) as f64;
    page.counter(
        "etcd_debugging_server_lease_expired_total",
        "Leases that ended by themselves.",
        expired,
    );
}

fn write_operations(page: &mut MetricsPage, core: &ServerContext) {
    let counts = core.store().counts();
    let rows = [
        ("etcd_mvcc_put_total", "Puts.", &counts.puts),
        ("etcd_mvcc_delete_total", "Deletions.", &counts.deletes),
        ("etcd_mvcc_range_total", "Ranges read.", &counts.ranges),
        (
            "etcd_mvcc_txn_total",
            "Transactions of more than one operation.",
            &counts.txns,
        ),
    ];
    for (name, help, value) in rows {
        page.counter(name, help, value.load(Ordering::Relaxed) as f64);
    }
    // A counter in meaning, but etcd declares it as a gauge.
    let bytes = counts.put_bytes.load(Ordering::Relaxed) as f64;
    page.gauge(
        "etcd_debugging_mvcc_total_put_size_in_bytes",
        "Bytes of keys and values put.",
        bytes,
    );
}

fn write_network(page: &mut MetricsPage, core: &ServerContext) {
    page.counter(
        "etcd_network_client_grpc_received_bytes_total",
        "Bytes received from clients.",
        core.traffic.received() as f64,
    );
    page.counter(
        "etcd_network_client_grpc_sent_bytes_total",
        "Bytes sent to clients.",
        core.traffic.sent() as f64,
    );
    peers::write_peer_metrics(page, core.identity.member, &core.directory);
    core.metrics
        .calls
        .write_metrics(page, core.bounds.detailed_metrics);
}
