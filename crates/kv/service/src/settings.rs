//! Flags, named as etcd names them; each can be given as an environment variable `ETCD_...` too.

mod connections;
mod corruption;
mod file;
mod time;
mod unsupported;

use crate::listen::{TlsFiles, Versions};
use anyhow::{Result, bail};
use base_telemetry::{LogFormat, LogOptions};
use base_tls::rustls::version::{TLS12, TLS13};
use clap::{ArgAction, Args, Parser, ValueEnum};
pub(crate) use connections::Connected;
use connections::{AutoTls, Connections};
use corruption::Corruption;
use std::path::PathBuf;
pub(crate) use time::duration;
pub use unsupported::UPSTREAM_FLAGS;

/// A key-value store with etcd's v3 API.
#[derive(Parser, Debug)]
#[command(name = "kvstore", version = VERSION, long_version = LONG_VERSION, args_conflicts_with_subcommands = true)]
pub struct Flags {
    #[command(subcommand)]
    pub(crate) command: Option<Subcommand>,
    #[command(flatten)]
    pub(crate) serve: Serve,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\netcd Version: 3.6.6");
/// The version of the API, as clients ask for it.
pub(crate) const API_VERSION: &str = "3.6.6";
/// The version that a cluster has, as clients and dashboards ask for it.
pub(crate) const CLUSTER_VERSION: &str = "3.6";

impl Flags {
    /// Where logs go.
    pub fn log(&self) -> LogOptions {
        // What is wrong with the file is told where it is used.
        if let Some((flags, _)) = self.serve.config_file.as_deref().and_then(|path| file::load(path).ok()) {
            return flags.log();
        }
        let mut log = self.log.clone();
        match self.serve.log_format.as_deref() {
            Some("json") => log.format = LogFormat::Json,
            Some(_) => log.format = LogFormat::Text,
            None => {}
        }
        match self.serve.log_level.as_str() {
            "debug" => log.verbosity = log.verbosity.max(4),
            "warn" => log.levels = Some("warn"),
            "error" | "panic" | "fatal" => log.levels = Some("error"),
            _ => {}
        }
        log
    }

    /// What counts: a configuration file, where one is given.
    pub(crate) fn effective(self) -> Result<Flags> {
        let Some(path) = self.serve.config_file.as_deref().filter(|_| self.command.is_none()) else {
            unsupported::check_environment(|name| std::env::var(name).ok())?;
            return Ok(self);
        };
        let (flags, warnings) = file::load(path)?;
        tracing::warn!(
            path = %path.display(),
            "the configuration is in a file; other command line flags and environment variables are ignored if provided"
        );
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(flags)
    }
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum Subcommand {
    /// Look at snapshot files, or make a data folder of one
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Verify a data folder that no server uses
    Check {
        /// The data folder
        #[arg(long)]
        data_dir: PathBuf,
        /// Where a copy of the state is made to look at [default: the system's folder for temporary files]
        #[arg(long)]
        work_dir: Option<PathBuf>,
    },
}

#[derive(clap::Subcommand, Debug)]
pub(crate) enum SnapshotCommand {
    /// Print a snapshot's hash, revision, keys and size
    Status(SnapshotStatus),
    /// Make a data folder of a snapshot, for a new cluster
    Restore(SnapshotRestore),
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotStatus {
    /// Snapshot file
    pub file: PathBuf,
    /// Format of what is printed
    #[arg(short = 'w', long = "write-out", default_value = "simple", value_parser = ["simple", "json", "table", "fields"])]
    pub write_out: String,
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotRestore {
    /// Snapshot file
    pub file: PathBuf,
    /// Member's name
    #[arg(long, default_value = "default")]
    pub name: String,
    /// Folder to make; must not exist or be empty
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Refused, unless it is where the log is: DATA/member/wal
    #[arg(long)]
    pub wal_dir: Option<PathBuf>,
    /// Members of the new cluster
    #[arg(long, default_value = "default=http://localhost:2380")]
    pub initial_cluster: String,
    /// Tells clusters apart
    #[arg(long, default_value = "etcd-cluster")]
    pub initial_cluster_token: String,
    /// This member's peer URLs
    #[arg(long, default_value = "http://localhost:2380")]
    pub initial_advertise_peer_urls: String,
    /// Do not check the file's hash, for copies of a database file
    #[arg(long)]
    pub skip_hash_check: bool,
    /// Add this to the revision
    #[arg(long, default_value_t = 0)]
    pub bump_revision: u64,
    /// Mark the old revisions as compacted
    #[arg(long)]
    pub mark_compacted: bool,
}

/// How history is compacted by itself.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum CompactionMode {
    Periodic,
    Revision,
}

#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum ClusterState {
    New,
    Existing,
}

#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// The one whose files are there; fjall in a new folder
    Auto,
    /// A log-structured merge tree in files
    Fjall,
    /// sled's files
    Sled,
    /// In memory: for tests; the log rebuilds it
    Memory,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct Serve {
    /// Member's name
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub name: String,
    /// Folder of log and state [default: NAME.etcd]
    #[arg(long, env = "ETCD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where clients are served; port 0 lets the kernel pick
    #[arg(long, env = "ETCD_LISTEN_CLIENT_URLS", default_value = "http://localhost:2379")]
    pub listen_client_urls: String,
    /// Where other members are served
    #[arg(long, env = "ETCD_LISTEN_PEER_URLS", default_value = "http://localhost:2380")]
    pub listen_peer_urls: String,
    /// Where /metrics and /health are served besides
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", default_value = "")]
    pub listen_metrics_urls: String,
    /// Where the pages (/health, /metrics, ...) are served besides
    #[arg(long, env = "ETCD_LISTEN_CLIENT_HTTP_URLS", default_value = "")]
    pub listen_client_http_urls: String,
    /// Client URLs to tell others [default: those listened on]
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS")]
    pub advertise_client_urls: Option<String>,
    /// Peer URLs to tell others [default: those listened on]
    #[arg(long, env = "ETCD_INITIAL_ADVERTISE_PEER_URLS")]
    pub initial_advertise_peer_urls: Option<String>,
    /// Members that a new cluster begins with [default: this one]
    #[arg(long, env = "ETCD_INITIAL_CLUSTER")]
    pub initial_cluster: Option<String>,
    /// Begin a cluster, or join one
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_STATE", value_enum, default_value = "new")]
    pub initial_cluster_state: ClusterState,
    /// Tells clusters apart
    #[arg(long, env = "ETCD_INITIAL_CLUSTER_TOKEN", default_value = "etcd-cluster")]
    pub initial_cluster_token: String,
    /// Go on with this member's data as the only member of its cluster, when all others are lost for good
    #[arg(long, env = "ETCD_FORCE_NEW_CLUSTER", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub force_new_cluster: bool,
    /// Writes the client port to this file
    #[arg(long)]
    pub port_file: Option<PathBuf>,
    /// Entries between two snapshots
    #[arg(long, env = "ETCD_SNAPSHOT_COUNT", default_value_t = 10_000)]
    pub snapshot_count: u64,
    /// Milliseconds between heartbeats
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL", default_value_t = 100)]
    pub heartbeat_interval: u64,
    /// Milliseconds without a leader before an election
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT", default_value_t = 1_000)]
    pub election_timeout: u64,
    /// The largest request, in bytes
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 1_572_864)]
    pub max_request_bytes: usize,
    /// The longest transaction
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// Refuse changes of members that would leave too few live voters
    #[arg(long, env = "ETCD_STRICT_RECONFIG_CHECK", action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true)]
    pub strict_reconfig_check: bool,
    /// Learners there may be
    #[arg(long, alias = "experimental-max-learners", env = "ETCD_MAX_LEARNERS", default_value_t = 1)]
    pub max_learners: usize,
    /// Space that data may take, in bytes; 0: 2 GiB
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0)]
    pub quota_backend_bytes: i64,
    /// How history is compacted by itself
    #[arg(long, env = "ETCD_AUTO_COMPACTION_MODE", value_enum, default_value = "periodic")]
    pub auto_compaction_mode: CompactionMode,
    /// How much history is kept: a time (or hours), or a number of revisions; 0: all
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Bytes of newest values kept in memory
    #[arg(long, default_value_t = 32 << 20)]
    pub value_cache_bytes: usize,
    /// Bytes of the engine's files kept in memory
    #[arg(long, default_value_t = 8 << 20)]
    pub engine_cache_bytes: u64,
    /// What keeps the state
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: EngineKind,
    /// How often a quiet watcher that asked for it hears how far it is
    #[arg(
        long,
        alias = "experimental-watch-progress-notify-interval",
        env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
        default_value = "10m"
    )]
    pub watch_progress_notify_interval: String,
    /// A request whose command takes longer to be applied is told in the log with its phases
    #[arg(
        long,
        alias = "experimental-warning-apply-duration",
        env = "ETCD_WARNING_APPLY_DURATION",
        default_value = "100ms"
    )]
    pub warning_apply_duration: String,
    /// A request that takes longer is told in the log with its phases
    #[arg(
        long,
        alias = "experimental-warning-unary-request-duration",
        env = "ETCD_WARNING_UNARY_REQUEST_DURATION",
        default_value = "300ms"
    )]
    pub warning_unary_request_duration: String,
    /// Tokens of authenticated users: simple, or jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m
    #[arg(long, env = "ETCD_AUTH_TOKEN", default_value = "simple")]
    pub auth_token: String,
    /// Seconds that a simple token lives
    #[arg(long, env = "ETCD_AUTH_TOKEN_TTL", default_value_t = 300)]
    pub auth_token_ttl: u64,
    /// Work that a password hash takes
    #[arg(long, env = "ETCD_BCRYPT_COST", default_value_t = 10)]
    pub bcrypt_cost: u32,
    /// Level of logs
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info", value_parser = ["debug", "info", "warn", "error", "panic", "fatal"])]
    pub log_level: String,
    /// Certificate for clients
    #[arg(long, env = "ETCD_CERT_FILE")]
    pub cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, env = "ETCD_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Take the certificate's common name for the user; needs --trusted-ca-file
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub client_cert_auth: bool,
    /// The CA of clients: only those with a certificate of it get in
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Certificate for other members
    #[arg(long, env = "ETCD_PEER_CERT_FILE")]
    pub peer_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, env = "ETCD_PEER_KEY_FILE")]
    pub peer_key_file: Option<PathBuf>,
    /// Let in only members with a certificate of the trusted CA; needs --peer-trusted-ca-file
    #[arg(long, env = "ETCD_PEER_CLIENT_CERT_AUTH", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub peer_client_cert_auth: bool,
    /// The CA of members: only those with a certificate of it get in
    #[arg(long, env = "ETCD_PEER_TRUSTED_CA_FILE")]
    pub peer_trusted_ca_file: Option<PathBuf>,
    /// Serve other members without mutual TLS: whoever reaches a peer port then reads and writes everything
    #[arg(long, env = "KVSTORE_ALLOW_INSECURE_PEERS", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub allow_insecure_peers: bool,
    /// The common names, one of which members' certificates must have
    #[arg(long, env = "ETCD_PEER_CERT_ALLOWED_CN")]
    pub peer_cert_allowed_cn: Option<String>,
    /// The oldest version of TLS that is spoken: TLS1.2 or TLS1.3
    #[arg(long, env = "ETCD_TLS_MIN_VERSION", default_value = "TLS1.2", value_parser = ["TLS1.2", "TLS1.3"])]
    pub tls_min_version: String,
    /// The newest one
    #[arg(long, env = "ETCD_TLS_MAX_VERSION", value_parser = ["", "TLS1.2", "TLS1.3"])]
    pub tls_max_version: Option<String>,
    /// Accepted with a warning; the log is in the data folder
    #[arg(long, env = "ETCD_WAL_DIR", hide = true)]
    pub wal_dir: Option<PathBuf>,
    /// etcd's configuration in a file of YAML; other flags and the environment do not count then
    #[arg(long, env = "ETCD_CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
    /// Level of detail of /metrics: extensive has the times of calls
    #[arg(long, env = "ETCD_METRICS", default_value = "extensive", value_parser = ["basic", "extensive"])]
    pub metrics: String,
    /// Format of log lines, under etcd's name
    #[arg(long, env = "ETCD_LOG_FORMAT", value_parser = ["json", "console"])]
    pub log_format: Option<String>,
    #[command(flatten)]
    pub connections: Connections,
    #[command(flatten)]
    pub auto_tls: AutoTls,
    #[command(flatten)]
    pub corruption: Corruption,
}

impl Serve {
    /// Folder of log and state.
    pub fn data_folder(&self) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| PathBuf::from(format!("{}.etcd", self.name)))
    }

    /// The versions of TLS that ports speak.
    fn versions(&self) -> Versions {
        const NEW: Versions = &[&TLS13];
        const OLD: Versions = &[&TLS12];
        const BOTH: Versions = &[&TLS13, &TLS12];
        let newest = self.tls_max_version.as_deref().unwrap_or_default();
        match (self.tls_min_version.as_str(), newest) {
            ("TLS1.3", _) => NEW,
            (_, "TLS1.2") => OLD,
            _ => BOTH,
        }
    }

    /// Whether the flags about TLS agree with each other.
    pub fn check_tls(&self) -> Result<()> {
        if self.tls_min_version == "TLS1.3" && self.tls_max_version.as_deref() == Some("TLS1.2") {
            bail!("--tls-min-version TLS1.3 is above --tls-max-version TLS1.2");
        }
        if self.peer_cert_allowed_cn.is_some() && self.peer_trusted_ca_file.is_none() {
            bail!(
                "--peer-cert-allowed-cn needs the CA that certificates are checked with: give it with --peer-trusted-ca-file"
            );
        }
        Ok(())
    }

    /// What the client ports have.
    pub fn client_files(&self) -> TlsFiles<'_> {
        TlsFiles {
            prefix: "",
            certificate: self.cert_file.as_deref(),
            key: self.key_file.as_deref(),
            ca: self.trusted_ca_file.as_deref(),
            demand: self.client_cert_auth,
            versions: self.versions(),
        }
    }

    /// What the peer ports have.
    pub fn peer_files(&self) -> TlsFiles<'_> {
        TlsFiles {
            prefix: "peer-",
            certificate: self.peer_cert_file.as_deref(),
            key: self.peer_key_file.as_deref(),
            ca: self.peer_trusted_ca_file.as_deref(),
            demand: self.peer_client_cert_auth,
            versions: self.versions(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }

    #[test]
    fn levels_of_logs_are_those_of_the_flag() {
        let levels = |level: &str| {
            let log = Flags::try_parse_from(["kvstore", "--log-level", level]).unwrap().log();
            (log.verbosity, log.levels)
        };
        assert_eq!(levels("debug"), (4, None));
        assert_eq!(levels("info"), (0, None));
        assert_eq!(levels("warn"), (0, Some("warn")));
        assert_eq!(levels("error"), (0, Some("error")));
    }

    #[test]
    fn the_form_of_logs_has_etcds_name_too() {
        let format = |words: &[&str]| {
            let words = std::iter::once("kvstore").chain(words.iter().copied());
            Flags::try_parse_from(words).unwrap().log().format
        };
        assert_eq!(format(&[]), LogFormat::Text);
        assert_eq!(format(&["--log-format=json"]), LogFormat::Json);
        assert_eq!(format(&["--log-format=console", "--logging-format=json"]), LogFormat::Text);
    }
}
