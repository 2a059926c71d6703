//! The configuration of a Raft node.

use crate::clock::Clock;
use crate::trust::PeerTrust;
use parking_lot::RwLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tonic::body::Body;

/// Settings of a Raft node.
#[derive(Clone)]
pub struct Config {
    /// Cluster ID.
    pub cluster: u64,
    /// ID of this member.
    pub member: u64,
    /// Heartbeat interval.
    pub heartbeat: Duration,
    /// Election timeout. It is extended if disk or network are slow.
    pub election_timeout: Duration,
    /// Number of entries between two snapshots. After each the log is purged.
    pub snapshot_entries: u64,
    /// Number of entries that remain in the log after a snapshot.
    pub kept_entries: u64,
    /// Directory for received snapshots.
    pub spool: PathBuf,
    /// TLS client configuration for peers.
    pub tls: PeerTls,
    /// Proof of membership required from callers and from called addresses.
    pub trust: PeerTrust,
    /// Size in bytes of the largest command.
    pub max_command: usize,
    /// Replaces the network, for simulations.
    pub dial: Option<Dial>,
    /// Recent duration of a log sync, in microseconds.
    pub sync_micros: Arc<AtomicU64>,
    /// Clock of the leader lease.
    pub clock: Clock,
}

/// TLS client configuration for peers. It is replaced when its files change.
pub type PeerTls = Arc<RwLock<Option<Arc<rustls::ClientConfig>>>>;

/// Connects to a peer URL in a simulation.
pub type Dial = Arc<dyn Fn(&str) -> Wire + Send + Sync>;

/// A simulated connection that carries calls.
pub type Wire =
    tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Body>, tower::BoxError>;
