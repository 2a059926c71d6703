//! Flags, with upstream's names and meanings. A configuration file given with `--config` overrides
//! them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base_cli::parse_duration;
use base_telemetry::LogOptions;
use clap::{ArgAction, Parser};

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kube-scheduler",
    version,
    about = "Decides which node each pod runs on"
)]
pub struct Flags {
    /// KubeSchedulerConfiguration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for TokenReviews of metrics readers; default is --kubeconfig
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews of metrics readers; default is --kubeconfig
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Time for which the user of a token is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Time for which a permission is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// Time for which a denial is cached
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Schedule only while holding the Lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,
    /// Duration of the Lease: how long others wait for a renewal
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub leader_elect_lease_duration: Duration,
    /// Time for which a leader that cannot renew keeps leading
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Interval between attempts to acquire the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
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
    /// Port to serve health and metrics on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 10259)]
    pub secure_port: u16,
    /// Write the bound port to this file
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Maximum time without another attempt for an unschedulable pod
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Serving certificate; self-signed if absent
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Oldest version of TLS to offer: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub tls_min_version: String,
    /// Cipher suites to offer for TLS 1.2, by Go's names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
    /// Serve HTTP/1.1 only
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub disable_http2_serving: bool,
    /// Paths that need no authorization; a trailing '*' matches any rest
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_values = ["/healthz", "/readyz", "/livez"])]
    pub authorization_always_allow_paths: Vec<String>,
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::UPSTREAM_FLAGS;
    use std::ffi::OsString;

    /// Command lines of installers.
    const INSTALLERS: [&[&str]; 3] = [
        &[
            "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
            "--bind-address=127.0.0.1",
            "--feature-gates=RotateKubeletServerCertificate=true",
            "--kubeconfig=/etc/kubernetes/scheduler.conf",
            "--leader-elect=true",
        ],
        &[
            "--authentication-kubeconfig=/s.kubeconfig",
            "--authorization-kubeconfig=/s.kubeconfig",
            "--bind-address=127.0.0.1",
            "--kubeconfig=/s.kubeconfig",
            "--leader-elect=false",
            "--profiling=false",
            "--secure-port=10259",
            "--tls-cert-file=/s.crt",
            "--tls-private-key-file=/s.key",
            "--v=1",
            "--vmodule=",
        ],
        &[
            "--authentication-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
            "--authorization-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
            "--config=/var/lib/kube-scheduler/config.yaml",
            "--feature-gates=InPlacePodVerticalScaling=true",
            "--leader-elect=true",
            "--tls-cert-file=/server.crt",
            "--tls-private-key-file=/server.key",
            "--tls-min-version=VersionTLS12",
            "--v=2",
        ],
    ];

    #[test]
    fn command_lines_of_installers_are_accepted() {
        for flags in INSTALLERS {
            let line = ["kube-scheduler"].iter().chain(flags).map(OsString::from);
            let accepted = base_cli::accept_upstream_flags(line, UPSTREAM_FLAGS);
            assert!(accepted.refusals.is_empty(), "{:?}", accepted.refusals);
            base_cli::parse::<Flags>(&accepted.arguments).unwrap();
        }
    }

    #[test]
    fn settings_that_would_weaken_or_redirect_are_refused() {
        for flag in [
            "--master=https://other:6443",
            "--tls-curve-preferences=29",
            "--write-config-to=x",
        ] {
            let accepted =
                base_cli::accept_upstream_flags([OsString::from(flag)].into_iter(), UPSTREAM_FLAGS);
            assert_eq!(accepted.refusals.len(), 1, "{flag}");
        }
    }
}
