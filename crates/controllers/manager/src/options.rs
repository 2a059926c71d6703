//! Flags, with upstream's names and meanings.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use base_telemetry::LogOptions;
use clap::{ArgAction, Parser};
use controllers_node::ipam::Range;
use ipnet::IpNet;

/// Upstream's flags that have no meaning here.
pub const IGNORED_FLAGS: &[&str] = &[
    "allow-untagged-cloud",
    "attach-detach-reconcile-sync-period",
    "authentication-skip-lookup",
    "authentication-token-webhook-cache-ttl",
    "authorization-always-allow-paths",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "cert-dir",
    "cidr-allocator-type",
    "client-ca-file",
    "cloud-config",
    "cloud-provider",
    "cluster-name",
    "concurrent-horizontal-pod-autoscaler-syncs",
    "configure-cloud-routes",
    "contention-profiling",
    "controller-start-interval",
    "disable-attach-detach-reconcile-sync",
    "emulated-version",
    "emulation-forward-compatible",
    "enable-dynamic-provisioning",
    "enable-garbage-collector",
    "enable-hostpath-provisioner",
    "enable-leader-migration",
    "endpoint-updates-batch-period",
    "endpointslice-updates-batch-period",
    "external-cloud-volume-plugin",
    "feature-gates",
    "flex-volume-plugin-dir",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "large-cluster-size-threshold",
    "leader-elect-resource-lock",
    "leader-migration-config",
    "log-flush-frequency",
    "master",
    "max-endpoints-per-slice",
    "min-resync-period",
    "mirroring-concurrent-service-endpoint-syncs",
    "mirroring-endpointslice-updates-batch-period",
    "mirroring-max-endpoints-per-subset",
    "namespace-sync-period",
    "node-eviction-rate",
    "node-monitor-period",
    "node-sync-period",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
    "pv-recycler-increment-timeout-nfs",
    "pvclaimbinder-sync-period",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "resource-quota-sync-period",
    "route-reconciliation-period",
    "secondary-node-eviction-rate",
    "show-hidden-metrics-for-version",
    "tls-cipher-suites",
    "tls-min-version",
    "unhealthy-zone-threshold",
    "vmodule",
];

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "kube-controller-manager", version, about = "Runs the cluster's controllers")]
pub struct Options {
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for reviewing the tokens of those who read metrics; the first one is used where absent
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for reviewing the rights of those who read metrics; the first one is used where absent
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Controllers to run: '*' for the usual ones, NAME to add, -NAME to leave out
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Let each controller write as its own service account
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub use_service_account_credentials: bool,
    /// Pod networks of the cluster, one a family
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// Give each node a subnet of the cluster's pod network
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub allocate_node_cidrs: bool,
    /// Prefix length of a node's subnet (24 for IPv4, 64 for IPv6 where absent)
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size: Option<u8>,
    /// Prefix length of a node's IPv4 subnet
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    /// Prefix length of a node's IPv6 subnet
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    /// Service networks of the cluster
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub service_cluster_ip_range: Vec<IpNet>,
    /// CA that service accounts are to trust; published in every namespace
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// Key that signs the tokens of token Secrets
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
    /// CA certificate that signs certificate requests
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// CA key that signs certificate requests
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// Longest life of a signed certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = duration)]
    pub cluster_signing_duration: Duration,
    /// Silence after which a node is unknown
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = duration)]
    pub node_monitor_grace_period: Duration,
    /// Silence after which a new node is unknown
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub node_startup_grace_period: Duration,
    /// Ended pods that are kept
    #[arg(long, value_name = "N", default_value_t = 12500)]
    pub terminated_pod_gc_threshold: usize,
    /// Time between looks at an autoscaler's metrics
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Run only while holding the Lease
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
    #[arg(long, value_name = "NAME", default_value = "kube-controller-manager")]
    pub leader_elect_resource_name: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
    /// Address to serve health and metrics on
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to serve health and metrics on; 0 lets the kernel pick
    #[arg(long, value_name = "PORT", default_value_t = 10257)]
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
    #[command(flatten)]
    workers: Workers,
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
}

/// How many objects of a kind are worked at once.
#[derive(Clone, Debug, clap::Args)]
pub struct Workers {
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_deployment_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_replicaset_syncs: usize,
    #[arg(long = "concurrent-rc-syncs", value_name = "N", default_value_t = 5)]
    concurrent_rc_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_statefulset_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 2)]
    concurrent_daemonset_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_job_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_cron_job_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_endpoint_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_service_endpoint_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_resource_quota_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 10)]
    concurrent_namespace_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 20)]
    concurrent_gc_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_ttl_after_finished_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_serviceaccount_token_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrent_service_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_disruption_syncs: usize,
}

impl Options {
    /// How many objects a controller works at once; a few are enough for what has no flag.
    pub fn workers(&self, controller: &str) -> usize {
        let w = &self.workers;
        match controller {
            "deployment-controller" => w.concurrent_deployment_syncs,
            "replicaset-controller" => w.concurrent_replicaset_syncs,
            "replicationcontroller-controller" => w.concurrent_rc_syncs,
            "statefulset-controller" => w.concurrent_statefulset_syncs,
            "daemonset-controller" => w.concurrent_daemonset_syncs,
            "job-controller" => w.concurrent_job_syncs,
            "cronjob-controller" => w.concurrent_cron_job_syncs,
            "endpoints-controller" => w.concurrent_endpoint_syncs,
            "endpointslice-controller" => w.concurrent_service_endpoint_syncs,
            "resourcequota-controller" => w.concurrent_resource_quota_syncs,
            "namespace-controller" => w.concurrent_namespace_syncs,
            "garbage-collector-controller" => w.concurrent_gc_syncs,
            "ttl-after-finished-controller" => w.concurrent_ttl_after_finished_syncs,
            "serviceaccount-token-controller" => w.concurrent_serviceaccount_token_syncs,
            "service-lb-controller" => w.concurrent_service_syncs,
            "disruption-controller" => w.concurrent_disruption_syncs,
            _ => 2,
        }
        .clamp(1, 64)
    }

    /// The ranges that nodes get subnets of, none where they are not to.
    pub fn node_ranges(&self) -> anyhow::Result<Vec<Range>> {
        if !self.allocate_node_cidrs {
            return Ok(Vec::new());
        }
        if self.cluster_cidr.is_empty() {
            bail!("--allocate-node-cidrs needs --cluster-cidr");
        }
        self.cluster_cidr.iter().map(|net| self.range(*net)).collect()
    }

    fn range(&self, cluster: IpNet) -> anyhow::Result<Range> {
        let (named, usual) = match cluster {
            IpNet::V4(_) => (self.node_cidr_mask_size_ipv4, 24),
            IpNet::V6(_) => (self.node_cidr_mask_size_ipv6, 64),
        };
        let mask = named.or(self.node_cidr_mask_size).unwrap_or(usual);
        if mask < cluster.prefix_len() || mask > cluster.max_prefix_len() {
            bail!("--node-cidr-mask-size {mask} does not fit --cluster-cidr {cluster}");
        }
        Ok(Range { cluster: cluster.trunc(), mask })
    }
}

/// A duration as Go writes it: `1h30m`, `50s`, `100ms`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => bail!("a duration such as 50s or 1h30m is expected"),
        };
        let number: f64 = number.parse().context("a duration such as 50s or 1h30m is expected")?;
        total += Duration::try_from_secs_f64(number * seconds)?;
        rest = tail;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("100ms").unwrap(), Duration::from_millis(100));
        assert!(duration("5 days").is_err());
    }

    #[test]
    fn flags_as_upstream_writes_them() {
        let args = [
            "x",
            "--controllers=*,-job-controller",
            "--leader-elect=false",
            "--allocate-node-cidrs=true",
            "--cluster-cidr=10.244.0.0/16",
        ];
        let options = Options::try_parse_from(args).unwrap();
        assert_eq!(options.controllers, ["*", "-job-controller"]);
        assert!(!options.leader_elect);
        assert_eq!(options.node_ranges().unwrap()[0].mask, 24);
        assert!(Options::try_parse_from(["x", "--no-such-flag"]).is_err());
    }
}
