//! Layout of a data directory.

/// Directory of the log.
pub const WAL_DIR: &str = "member/wal";
/// Directory of the engine's files.
pub const STATE_DIR: &str = "member/state";
/// Directory of received snapshots.
pub const RECEIVED_DIR: &str = "member/received";
/// File of the snapshot that is being installed, in `RECEIVED_DIR`.
pub const INSTALLING: &str = "installing.rows";
