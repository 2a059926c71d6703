//! Flags, with upstream's names and meanings. A configuration file given with `--config` wins over them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base_telemetry::LogOptions;
use clap::{ArgAction, Parser};

use crate::config::duration;

/// Upstream's flags that have no meaning here.
pub const IGNORED_FLAGS: &[&str] = &[
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "authentication-skip-lookup",
    "authentication-token-webhook-cache-ttl",
    "authentication-tolerate-lookup-failure",
    "authorization-always-allow-paths",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "client-ca-file",
    "contention-profiling",
    "disable-http2-serving",
    "disabled-metrics",
    "emulated-version",
    "emulation-forward-compatible",
    "feature-gates",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "leader-elect-resource-lock",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-json-split-stream",
    "log-text-info-buffer-size",
    "log-text-split-stream",
    "master",
    "min-compatibility-version",
    "permit-address-sharing",
    "permit-port-sharing",
    "pod-max-in-unschedulable-pods-duration",
    "profiling",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "show-hidden-metrics-for-version",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-sni-cert-key",
    "vmodule",
    "write-config-to",
];

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "kube-scheduler", version, about = "Decides which node each pod runs on")]
pub struct Flags {
    /// KubeSchedulerConfiguration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for reviewing the tokens of those who read metrics; the first one is used where absent
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for reviewing the rights of those who read metrics; the first one is used where absent
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Schedule only while holding the Lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// How long a Lease that is not renewed is respected
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long a leader that can't renew stays one
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Time between attempts to take the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Name of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-scheduler")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Address to serve health and metrics on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve health and metrics on; 0 lets the kernel pick
    #[arg(long, value_name = "PORT", default_value_t = 10259)]
    pub secure_port: u16,
    /// File that gets the port which is served
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Certificate to serve with; self-signed where absent
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
}
