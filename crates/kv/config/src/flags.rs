//! Flags, named like etcd's. Most can also be set by an environment variable `ETCD_...`.

mod connections;
mod corruption;
mod file;
mod time;
mod unsupported;

use crate::tls::{TlsFiles, Versions};
use anyhow::{Context, Result, bail};
use base_telemetry::{LogFormat, LogOptions};
use base_tls::Offer;
use base_tls::rustls::version::{TLS12, TLS13};
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use connections::{AutoTls, ConnectionFlags};
pub use corruption::CorruptionChecks;
use corruption::CorruptionFlags;
use std::path::{Path, PathBuf};
pub use time::parse_duration;
pub use unsupported::UPSTREAM_FLAGS;

/// A key-value store with etcd's v3 API.
#[derive(Parser, Debug)]
#[command(name = "kvstore", version = VERSION, long_version = LONG_VERSION, args_conflicts_with_subcommands = true)]
pub struct Flags {
    /// A command that needs no server.
    #[command(subcommand)]
    pub command: Option<Subcommand>,
    /// Flags of a member.
    #[command(flatten)]
    pub serve: ServeFlags,
    /// Flags of logging.
    #[command(flatten)]
    pub log: LogOptions,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LONG_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\netcd Version: 3.6.6");
/// Version of the API that clients see.
// Clients switch features on by it: the API server requests watch progress only from versions that
// support it.
pub const API_VERSION: &str = "3.6.6";
/// Version of the cluster that clients and dashboards see.
pub const CLUSTER_VERSION: &str = "3.6";

impl Flags {
    /// Returns the options of logging.
    pub fn log(&self) -> LogOptions {
        // An error in the file is reported later, when the file is loaded for use.
        if let Some((flags, _)) = self
            .serve
            .config_file
            .as_deref()
            .and_then(|path| load_file(path).ok())
        {
            return flags.log();
        }
        let mut log = self.log.clone();
        // etcd's name takes precedence over --logging-format.
        match self.serve.log_format.as_deref() {
            Some("json") => log.format = LogFormat::Json,
            Some(_) => log.format = LogFormat::Text,
            None => {}
        }
        match self.serve.log_level.as_str() {
            // Only raised: a higher --v of the same command line stays.
            "debug" => log.verbosity = log.verbosity.max(4),
            "warn" => log.levels = Some("warn"),
            // zap's levels above error have no counterpart.
            "error" | "panic" | "fatal" => log.levels = Some("error"),
            _ => {}
        }
        log
    }

    /// Returns the effective flags: those of the configuration file, if one is given.
    pub fn effective(self) -> Result<Flags> {
        // As in etcd, a file replaces all flags; mixing the two would leave unclear which value
        // applies.
        let Some(path) = self
            .serve
            .config_file
            .as_deref()
            .filter(|_| self.command.is_none())
        else {
            // Only without a file: it replaces the environment as well.
            let variable = |name: &str| std::env::var(name).ok();
            unsupported::check_environment(variable)?;
            for warning in unsupported::find_former_names(&Flags::command(), variable) {
                tracing::warn!("{warning}");
            }
            return Ok(self);
        };
        let (flags, warnings) = load_file(path)?;
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

/// Loads the flags of a configuration file, and warnings about settings that are not implemented.
fn load_file(path: &Path) -> Result<(Flags, Vec<String>)> {
    let (matches, warnings) = file::load_flags(path, Flags::command())?;
    Ok((Flags::from_arg_matches(&matches)?, warnings))
}

/// Commands that need no server.
#[derive(clap::Subcommand, Debug)]
pub enum Subcommand {
    /// Inspect snapshot files, or restore a data directory from one
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Verify a data directory that no server uses
    Check {
        /// The data directory
        #[arg(long)]
        data_dir: PathBuf,
        /// Directory for the copy of the state that is verified [default: the system's temporary
        /// directory]
        #[arg(long)]
        work_dir: Option<PathBuf>,
    },
}

/// Commands about snapshot files.
#[derive(clap::Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Print a snapshot's hash, revision, keys and size
    Status(SnapshotStatus),
    /// Create a data directory from a snapshot, for a new cluster
    Restore(SnapshotRestore),
}

/// Flags of `snapshot status`.
#[derive(Args, Debug)]
pub struct SnapshotStatus {
    /// Snapshot file
    pub file: PathBuf,
    /// Output format
    #[arg(short = 'w', long = "write-out", default_value = "simple", value_parser = ["simple", "json", "table", "fields"])]
    pub write_out: String,
}

/// Flags of `snapshot restore`.
#[derive(Args, Debug)]
pub struct SnapshotRestore {
    /// Snapshot file
    pub file: PathBuf,
    /// Name of the member
    #[arg(long, default_value = "default")]
    pub name: String,
    /// Directory to create; must not exist or be empty
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// Rejected, unless it is the directory of the log: DATA/member/wal
    #[arg(long)]
    pub wal_dir: Option<PathBuf>,
    /// Members of the new cluster
    #[arg(long, default_value = "default=http://localhost:2380")]
    pub initial_cluster: String,
    /// Token that is part of the cluster's ID
    #[arg(long, default_value = "etcd-cluster")]
    pub initial_cluster_token: String,
    /// This member's peer URLs
    #[arg(long, default_value = "http://localhost:2380")]
    pub initial_advertise_peer_urls: String,
    /// Do not check the file's hash, for copies of a database file
    #[arg(long)]
    pub skip_hash_check: bool,
    /// Increase the revision by this number
    #[arg(long, default_value_t = 0)]
    pub bump_revision: u64,
    /// Mark the old revisions as compacted
    #[arg(long)]
    pub mark_compacted: bool,
    /// Omit this key, or all keys with this prefix if it ends with /; can be repeated
    #[arg(long, value_name = "KEY")]
    pub omit: Vec<String>,
}

/// Modes of automatic compaction.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
#[allow(missing_docs, reason = "clap would print them as help")]
pub enum CompactionMode {
    Periodic,
    Revision,
}

/// State of the cluster that a member without data starts in.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
#[allow(missing_docs, reason = "clap would print them as help")]
pub enum ClusterState {
    New,
    Existing,
}

/// Engines that can be chosen.
#[derive(Clone, Copy, Debug, ValueEnum, PartialEq, Eq)]
pub enum EngineKind {
    /// The engine of the existing files; fjall in a new directory
    Auto,
    /// A log-structured merge tree on disk
    Fjall,
    /// sled, for directories that it created
    Sled,
    /// In memory, for tests; the log rebuilds it
    Memory,
}

/// Flags of a member.
#[derive(Args, Debug, Clone)]
pub struct ServeFlags {
    /// Name of this member
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub name: String,
    /// Directory of log and state [default: NAME.etcd]
    #[arg(long, env = "ETCD_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// URLs to listen on for clients: http://, https:// or unix://PATH; port 0 lets the kernel pick
    /// one
    #[arg(
        long,
        env = "ETCD_LISTEN_CLIENT_URLS",
        default_value = "http://localhost:2379"
    )]
    pub listen_client_urls: String,
    /// URLs to listen on for other members
    #[arg(
        long,
        env = "ETCD_LISTEN_PEER_URLS",
        default_value = "http://localhost:2380"
    )]
    pub listen_peer_urls: String,
    /// Additional URLs for /metrics and /health
    #[arg(long, env = "ETCD_LISTEN_METRICS_URLS", default_value = "")]
    pub listen_metrics_urls: String,
    /// Additional URLs for the HTTP pages (/health, /metrics, ...)
    #[arg(long, env = "ETCD_LISTEN_CLIENT_HTTP_URLS", default_value = "")]
    pub listen_client_http_urls: String,
    /// Client URLs to advertise [default: those listened on]
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS")]
    pub advertise_client_urls: Option<String>,
    /// Peer URLs to advertise [default: those listened on]
    #[arg(long, env = "ETCD_INITIAL_ADVERTISE_PEER_URLS")]
    pub initial_advertise_peer_urls: Option<String>,
    /// Initial members of a new cluster [default: this one]
    #[arg(long, env = "ETCD_INITIAL_CLUSTER")]
    pub initial_cluster: Option<String>,
    /// Start a new cluster, or join an existing one
    #[arg(
        long,
        env = "ETCD_INITIAL_CLUSTER_STATE",
        value_enum,
        default_value = "new"
    )]
    pub initial_cluster_state: ClusterState,
    /// Token that is part of the cluster's ID
    #[arg(
        long,
        env = "ETCD_INITIAL_CLUSTER_TOKEN",
        default_value = "etcd-cluster"
    )]
    pub initial_cluster_token: String,
    /// Restart as a single-member cluster with this member's data, when all other members are lost
    /// for good
    #[arg(long, env = "ETCD_FORCE_NEW_CLUSTER", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    // A boolean flag of Go's: alone, `=true` or `=false`. Without `require_equals` it would take
    // the next word as its value.
    pub force_new_cluster: bool,
    /// Write the client port to this file
    #[arg(long)]
    pub port_file: Option<PathBuf>,
    /// Number of entries between two snapshots
    #[arg(long, env = "ETCD_SNAPSHOT_COUNT", default_value_t = 10_000)]
    pub snapshot_count: u64,
    /// Number of entries that stay in the log after a snapshot, for members that are behind; at
    /// least 100
    #[arg(
        long,
        alias = "experimental-snapshot-catchup-entries",
        env = "ETCD_SNAPSHOT_CATCHUP_ENTRIES",
        default_value_t = 5_000
    )]
    pub snapshot_catchup_entries: u64,
    /// Milliseconds between heartbeats
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL", default_value_t = 100)]
    pub heartbeat_interval: u64,
    /// Milliseconds without a leader before an election
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT", default_value_t = 1_000)]
    pub election_timeout: u64,
    /// Maximum size of a request in bytes
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 1_572_864)]
    pub max_request_bytes: usize,
    /// Maximum number of operations in a transaction
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// Reject membership changes that would leave too few live voters
    #[arg(long, env = "ETCD_STRICT_RECONFIG_CHECK", action = ArgAction::Set, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true)]
    pub strict_reconfig_check: bool,
    /// Maximum number of learners
    #[arg(
        long,
        alias = "experimental-max-learners",
        env = "ETCD_MAX_LEARNERS",
        default_value_t = 1
    )]
    pub max_learners: usize,
    /// Quota of the data in bytes; 0: 2 GiB
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0)]
    pub quota_backend_bytes: i64,
    /// Mode of automatic compaction
    #[arg(
        long,
        env = "ETCD_AUTO_COMPACTION_MODE",
        value_enum,
        default_value = "periodic"
    )]
    pub auto_compaction_mode: CompactionMode,
    /// History to keep: a duration (a number means hours), or a number of revisions; 0: everything
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Size in bytes of the cache of latest values
    #[arg(long, default_value_t = 32 << 20)]
    pub value_cache_bytes: usize,
    /// Size in bytes of the cache of the engine's files
    #[arg(long, default_value_t = 8 << 20)]
    pub engine_cache_bytes: u64,
    /// Engine that stores the state
    #[arg(long, value_enum, default_value = "auto")]
    pub engine: EngineKind,
    /// Interval of progress notifications to idle watchers that requested them
    #[arg(
        long,
        alias = "experimental-watch-progress-notify-interval",
        env = "ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL",
        default_value = "10m"
    )]
    pub watch_progress_notify_interval: String,
    /// A request whose command takes longer to apply is logged with its phases
    #[arg(
        long,
        alias = "experimental-warning-apply-duration",
        env = "ETCD_WARNING_APPLY_DURATION",
        default_value = "100ms"
    )]
    pub warning_apply_duration: String,
    /// A request that takes longer is logged with its phases
    #[arg(
        long,
        alias = "experimental-warning-unary-request-duration",
        env = "ETCD_WARNING_UNARY_REQUEST_DURATION",
        default_value = "300ms"
    )]
    pub warning_unary_request_duration: String,
    /// Type of auth tokens: simple, or jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m
    #[arg(long, env = "ETCD_AUTH_TOKEN", default_value = "simple")]
    pub auth_token: String,
    /// Seconds after which an unused simple token expires
    #[arg(long, env = "ETCD_AUTH_TOKEN_TTL", default_value_t = 300)]
    pub auth_token_ttl: u64,
    /// Cost of a password hash (bcrypt)
    #[arg(long, env = "ETCD_BCRYPT_COST", default_value_t = 10)]
    pub bcrypt_cost: u32,
    /// Log level
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info", value_parser = ["debug", "info", "warn", "error", "panic", "fatal"])]
    pub log_level: String,
    /// Server certificate for clients
    #[arg(long, env = "ETCD_CERT_FILE")]
    pub cert_file: Option<PathBuf>,
    /// Key of the server certificate
    #[arg(long, env = "ETCD_KEY_FILE")]
    pub key_file: Option<PathBuf>,
    /// Use the common name of a client's certificate as its user; needs --trusted-ca-file
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub client_cert_auth: bool,
    /// CA of clients: only clients with a certificate of it are accepted
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE")]
    pub trusted_ca_file: Option<PathBuf>,
    /// Certificate for peers
    #[arg(long, env = "ETCD_PEER_CERT_FILE")]
    pub peer_cert_file: Option<PathBuf>,
    /// Key of the certificate for peers
    #[arg(long, env = "ETCD_PEER_KEY_FILE")]
    pub peer_key_file: Option<PathBuf>,
    /// Certificate for calls to other members, valid for this member's peer URL [default:
    /// --peer-cert-file]
    #[arg(long, env = "ETCD_PEER_CLIENT_CERT_FILE")]
    pub peer_client_cert_file: Option<PathBuf>,
    /// Its key
    #[arg(long, env = "ETCD_PEER_CLIENT_KEY_FILE")]
    pub peer_client_key_file: Option<PathBuf>,
    /// Let in only members with a certificate of the trusted CA; needs --peer-trusted-ca-file
    #[arg(long, env = "ETCD_PEER_CLIENT_CERT_AUTH", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub peer_client_cert_auth: bool,
    /// CA of peers: only peers with a certificate of it are accepted
    #[arg(long, env = "ETCD_PEER_TRUSTED_CA_FILE")]
    pub peer_trusted_ca_file: Option<PathBuf>,
    /// Serve peers without mutual TLS: every host that reaches a peer port can then read and write
    /// everything
    #[arg(long, env = "KVSTORE_ALLOW_INSECURE_PEERS", action = ArgAction::Set, num_args = 0..=1, default_value_t = false, default_missing_value = "true", require_equals = true)]
    pub allow_insecure_peers: bool,
    /// Common names, one of which a peer's certificate must have
    #[arg(long, env = "ETCD_PEER_CERT_ALLOWED_CN")]
    pub peer_cert_allowed_cn: Option<String>,
    /// Minimum version of TLS: TLS1.2 or TLS1.3
    #[arg(long, env = "ETCD_TLS_MIN_VERSION", default_value = "TLS1.2", value_parser = ["TLS1.2", "TLS1.3"])]
    pub tls_min_version: String,
    /// Maximum version of TLS
    #[arg(long, env = "ETCD_TLS_MAX_VERSION", value_parser = ["", "TLS1.2", "TLS1.3"])]
    pub tls_max_version: Option<String>,
    /// Suites of TLS 1.2 that ports offer, by Go's names; those of TLS 1.3 are always offered
    #[arg(long, env = "ETCD_CIPHER_SUITES", value_delimiter = ',')]
    pub cipher_suites: Vec<String>,
    /// Accepted with a warning; the log is in the data folder
    #[arg(long, env = "ETCD_WAL_DIR", hide = true)]
    pub wal_dir: Option<PathBuf>,
    /// etcd's configuration as a YAML file; other flags and the environment are then ignored
    #[arg(long, env = "ETCD_CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
    /// Level of detail of /metrics: extensive includes the durations of calls
    #[arg(long, env = "ETCD_METRICS", default_value = "extensive", value_parser = ["basic", "extensive"])]
    pub metrics: String,
    /// Format of log lines, under etcd's name
    #[arg(long, env = "ETCD_LOG_FORMAT", value_parser = ["json", "console"])]
    pub log_format: Option<String>,
    /// Limits of client connections.
    #[command(flatten)]
    pub connections: ConnectionFlags,
    /// Self-signed certificates.
    #[command(flatten)]
    pub auto_tls: AutoTls,
    /// Comparison of the members' data.
    #[command(flatten)]
    pub corruption: CorruptionFlags,
}

impl ServeFlags {
    /// Returns the directory of log and state.
    pub fn data_folder(&self) -> PathBuf {
        self.data_dir
            .clone()
            // etcd's default name, so that scripts which look for the directory find it.
            .unwrap_or_else(|| PathBuf::from(format!("{}.etcd", self.name)))
    }

    /// Returns the enabled versions of TLS.
    fn versions(&self) -> Versions {
        // rustls knows no older version, so a minimum of TLS 1.2 is always met.
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

    /// Returns the versions and suites of TLS that ports offer.
    fn offer(&self) -> Result<Offer> {
        let named: Vec<String> = self
            .cipher_suites
            .iter()
            // An empty value means the default, as for etcd.
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        Ok(Offer::from_names("", &named)
            .context("--cipher-suites")?
            .with_versions(self.versions()))
    }

    /// Returns an error if the flags about TLS contradict each other.
    pub fn check_tls(&self) -> Result<()> {
        // No version would remain, and every handshake would fail without a reason for the
        // operator.
        if self.tls_min_version == "TLS1.3" && self.tls_max_version.as_deref() == Some("TLS1.2") {
            bail!("--tls-min-version TLS1.3 is above --tls-max-version TLS1.2");
        }
        if self.peer_client_cert_file.is_some() != self.peer_client_key_file.is_some() {
            bail!(
                "--peer-client-cert-file and --peer-client-key-file need each other: give both or none"
            );
        }
        // It replaces only the certificate for outgoing calls; the port itself would stay without
        // TLS.
        if self.peer_client_cert_file.is_some() && self.peer_cert_file.is_none() {
            bail!(
                "--peer-client-cert-file needs a certificate for the peer port: give it with --peer-cert-file"
            );
        }
        // Without a CA any caller can present any name.
        if self.peer_cert_allowed_cn.is_some() && self.peer_trusted_ca_file.is_none() {
            bail!(
                "--peer-cert-allowed-cn needs the CA that certificates are checked with: give it with --peer-trusted-ca-file"
            );
        }
        Ok(())
    }

    /// Returns the TLS files of the client ports.
    pub fn client_files(&self) -> Result<TlsFiles<'_>> {
        Ok(TlsFiles {
            prefix: "",
            certificate: self.cert_file.as_deref(),
            key: self.key_file.as_deref(),
            ca: self.trusted_ca_file.as_deref(),
            demand: self.client_cert_auth,
            offer: self.offer()?,
        })
    }

    /// Returns the files of this member's own certificates and its CAs, by their flags.
    #[must_use]
    pub fn list_certificate_files(&self) -> Vec<(&'static str, PathBuf)> {
        let given = [
            ("cert-file", &self.cert_file),
            ("trusted-ca-file", &self.trusted_ca_file),
            ("peer-cert-file", &self.peer_cert_file),
            ("peer-client-cert-file", &self.peer_client_cert_file),
            ("peer-trusted-ca-file", &self.peer_trusted_ca_file),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(flag, file)| Some((flag, file.clone()?)))
            .collect()
    }

    /// Returns the TLS files of the peer ports.
    pub fn peer_files(&self) -> Result<TlsFiles<'_>> {
        Ok(TlsFiles {
            prefix: "peer-",
            certificate: self.peer_cert_file.as_deref(),
            key: self.peer_key_file.as_deref(),
            ca: self.peer_trusted_ca_file.as_deref(),
            demand: self.peer_client_cert_auth,
            offer: self.offer()?,
        })
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
            let log = Flags::try_parse_from(["kvstore", "--log-level", level])
                .unwrap()
                .log();
            (log.verbosity, log.levels)
        };
        assert_eq!(levels("debug"), (4, None));
        assert_eq!(levels("info"), (0, None));
        assert_eq!(levels("warn"), (0, Some("warn")));
        assert_eq!(levels("error"), (0, Some("error")));
    }

    #[test]
    fn log_format_has_etcds_flag_too() {
        let format = |words: &[&str]| {
            let words = std::iter::once("kvstore").chain(words.iter().copied());
            Flags::try_parse_from(words).unwrap().log().format
        };
        assert_eq!(format(&[]), LogFormat::Text);
        assert_eq!(format(&["--log-format=json"]), LogFormat::Json);
        assert_eq!(
            format(&["--log-format=console", "--logging-format=json"]),
            LogFormat::Text
        );
    }

    fn serve(words: &[&str]) -> ServeFlags {
        let words = std::iter::once("kvstore").chain(words.iter().copied());
        Flags::try_parse_from(words).unwrap().serve
    }

    #[test]
    fn data_directory_is_named_after_the_member_by_default() {
        for (words, expect) in [
            (&[][..], "default.etcd"),
            (&["--name=m1"], "m1.etcd"),
            (&["--name=m1", "--data-dir=/d"], "/d"),
        ] {
            assert_eq!(
                serve(words).data_folder(),
                PathBuf::from(expect),
                "{words:?}"
            );
        }
    }

    #[test]
    fn versions_of_tls_are_bounded_on_both_sides() {
        for (words, expect) in [
            (&[][..], &[&TLS13, &TLS12][..]),
            (&["--tls-min-version=TLS1.3"], &[&TLS13]),
            (&["--tls-max-version=TLS1.2"], &[&TLS12]),
            (&["--tls-max-version=TLS1.3"], &[&TLS13, &TLS12]),
            (&["--tls-max-version="], &[&TLS13, &TLS12]),
        ] {
            let versions: Vec<_> = serve(words).versions().iter().map(|v| v.version).collect();
            let expect: Vec<_> = expect.iter().map(|v| v.version).collect();
            assert_eq!(versions, expect, "{words:?}");
        }
    }

    #[test]
    fn flags_of_tls_that_contradict_each_other_are_rejected() {
        for (words, name) in [
            (
                &["--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"][..],
                "--tls-min-version",
            ),
            (&["--peer-client-cert-file=c"], "--peer-client-key-file"),
            (
                &["--peer-client-cert-file=c", "--peer-client-key-file=k"],
                "--peer-cert-file",
            ),
            (&["--peer-cert-allowed-cn=m"], "--peer-trusted-ca-file"),
        ] {
            let rejected = serve(words).check_tls().unwrap_err().to_string();
            assert!(rejected.contains(name), "{words:?}: {rejected}");
        }
        serve(&[]).check_tls().unwrap();
    }

    #[test]
    fn configuration_file_replaces_all_other_flags() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvstore.yaml");
        std::fs::write(&path, "name: file\nlog-level: debug\n").unwrap();
        let file = format!("--config-file={}", path.display());
        let words = ["kvstore", "--name=flag", "--snapshot-count=7", &file];
        let flags = Flags::try_parse_from(words).unwrap();
        assert_eq!(flags.log().verbosity, 4);
        let serve = flags.effective().unwrap().serve;
        assert_eq!(
            (serve.name.as_str(), serve.snapshot_count),
            ("file", 10_000)
        );
    }

    #[test]
    fn boolean_flag_needs_no_value() {
        for (words, expect) in [
            (&[][..], true),
            (&["--strict-reconfig-check"], true),
            (&["--strict-reconfig-check=true"], true),
            (&["--strict-reconfig-check=false"], false),
        ] {
            assert_eq!(serve(words).strict_reconfig_check, expect, "{words:?}");
        }
    }

    #[test]
    fn help_describes_the_program_and_not_a_group_of_flags() {
        use clap::CommandFactory;
        let about = Flags::command().get_about().map(ToString::to_string);
        assert_eq!(
            about.as_deref(),
            Some("A key-value store with etcd's v3 API")
        );
    }
}
