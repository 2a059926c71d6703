//! Flags of etcd's that are known and not honoured.

use anyhow::{Result, bail};
use clap::Args;

/// etcd's flags that mean nothing here: accepted with a warning.
pub const IGNORED_FLAGS: &[&str] = &[
    "max-snapshots",
    "max-wals",
    "proxy",
    "proxy-failure-wait",
    "proxy-refresh-interval",
    "proxy-dial-timeout",
    "proxy-write-timeout",
    "proxy-read-timeout",
    "strict-reconfig-check",
    "pre-vote",
    "logger",
    "log-outputs",
    "enable-log-rotation",
    "log-rotation-config-json",
    "enable-pprof",
    "unsafe-no-fsync",
    "socket-reuse-port",
    "socket-reuse-address",
    "backend-batch-limit",
    "backend-batch-interval",
    "backend-bbolt-freelist-type",
    "initial-election-tick-advance",
    "discovery",
    "discovery-srv",
    "discovery-srv-name",
    "discovery-fallback",
    "discovery-proxy",
    "enable-v2",
    "host-whitelist",
    "cors",
    "experimental-compaction-batch-limit",
    "compaction-batch-limit",
    "experimental-enable-lease-checkpoint",
    "experimental-enable-lease-checkpoint-persist",
    "snapshot-catchup-entries",
    "grpc-keepalive-min-time",
    "experimental-memory-mlock",
    "experimental-bootstrap-defrag-threshold-megabytes",
    "v2-deprecation",
    "experimental-stop-grpc-service-on-defrag",
    "stop-grpc-service-on-defrag",
    "compaction-sleep-interval",
    "experimental-compaction-sleep-interval",
    "memory-mlock",
    "enable-grpc-gateway",
    "downgrade-check-time",
    "experimental-downgrade-check-time",
    "bootstrap-defrag-threshold-megabytes",
];

/// etcd's flags that restrict who gets in, and that can't be honoured: taking them for nothing would let others in.
#[derive(Args, Debug, Clone)]
pub(crate) struct Refused {
    #[arg(long, env = "ETCD_CIPHER_SUITES", hide = true)]
    cipher_suites: Option<String>,
    #[arg(long, env = "ETCD_CLIENT_CRL_FILE", hide = true)]
    client_crl_file: Option<String>,
    #[arg(long, env = "ETCD_PEER_CRL_FILE", hide = true)]
    peer_crl_file: Option<String>,
    #[arg(long, env = "ETCD_PEER_CERT_ALLOWED_HOSTNAME", hide = true)]
    peer_cert_allowed_hostname: Option<String>,
    #[arg(long, env = "ETCD_CLIENT_CERT_ALLOWED_HOSTNAME", hide = true)]
    client_cert_allowed_hostname: Option<String>,
}

impl Refused {
    /// Whether none of them asks for something.
    pub fn check(&self) -> Result<()> {
        let given = [
            ("cipher-suites", &self.cipher_suites),
            ("client-crl-file", &self.client_crl_file),
            ("peer-crl-file", &self.peer_crl_file),
            ("peer-cert-allowed-hostname", &self.peer_cert_allowed_hostname),
            ("client-cert-allowed-hostname", &self.client_cert_allowed_hostname),
        ];
        match given.into_iter().find(|(_, value)| value.as_ref().is_some_and(|value| !value.is_empty())) {
            Some((flag, _)) => bail!(
                "--{flag} is not supported, and starting without it would let in those whom it keeps out: leave it out if that is \
                 meant, and give out certificates of a CA of their own instead"
            ),
            None => Ok(()),
        }
    }
}
