//! Configuration of the store: flags, environment, configuration file, and the settings that they
//! decide.
//!
//! Invariant: reads files and flags only. It opens no port, and changes no data directory but for
//! the certificates of `--auto-tls`.

mod auto_tls;
mod data_dir;
mod flags;
mod initial_cluster;
mod peer_access;
mod retention;
mod tls;
mod urls;

pub use auto_tls::with_auto_tls;
pub use data_dir::{INSTALLING, RECEIVED_DIR, STATE_DIR, WAL_DIR};
pub use flags::{
    API_VERSION, CLUSTER_VERSION, ClusterState, CompactionMode, CorruptionChecks, EngineKind,
    Flags, ServeFlags, SnapshotCommand, SnapshotRestore, SnapshotStatus, Subcommand,
    UPSTREAM_FLAGS, parse_duration,
};
pub use initial_cluster::{cluster_id, initial_members, member_id};
pub use peer_access::{CLOSED, PeerAccess};
pub use retention::Retention;
pub use tls::{TlsFiles, tls_config};
pub use urls::{ServerUrl, parse_urls};
