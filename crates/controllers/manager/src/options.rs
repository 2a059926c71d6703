//! Flags, with upstream's names and meanings.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use api_address_pool::AddressPool;
use base_duration::parse_unsigned;
use base_telemetry::LogOptions;
use clap::{ArgAction, Parser};
use component::{AccessFlags, LeaderElectionFlags, ServingFlags};
use controllers_node::ipam::Range;
use ipnet::IpNet;

pub use gates::{POD_CERTIFICATE_REQUEST, STORAGE_VERSION_MIGRATOR};
pub use upstream::UPSTREAM_FLAGS;

mod gates;
mod signing;
mod upstream;

/// Maximum number of bits between an IPv6 range and a node's subnet: upstream's limit.
const MOST_SUBNET_BITS: u8 = 16;

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kube-controller-manager",
    version,
    about = "Runs the cluster's controllers",
    mut_arg("leader_elect_resource_name", |arg| arg.default_value("kube-controller-manager")),
    mut_arg("secure_port", |arg| arg.default_value("10257"))
)]
pub struct Options {
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Access to the own server
    #[command(flatten)]
    pub access: AccessFlags,
    /// Controllers to run: '*' for all but bootstrapsigner, tokencleaner and
    /// kubelet-serving-approver, NAME to add, -NAME to leave out
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,
    /// Feature gates: StorageVersionMigrator=true runs the storage version migrator,
    /// PodCertificateRequest=true the cleaner of such requests
    #[arg(long, value_name = "NAME=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<String>,
    /// Let each controller write with its own service account
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub use_service_account_credentials: bool,
    /// Pod networks of the cluster, one per family
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    pub cluster_cidr: Vec<IpNet>,
    /// Allocate a subnet of the cluster's pod network to each node
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub allocate_node_cidrs: bool,
    /// Prefix length of a node's subnet (default 24 for IPv4, 64 for IPv6)
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
    /// Addresses for Services of type LoadBalancer: CIDRs, FIRST-LAST or addresses. The nodes
    /// announce them if their kube-proxy has the same flag
    #[arg(long, value_name = "RANGE,...")]
    pub load_balancer_pool: Option<AddressPool>,
    /// CA that is published in every namespace for service accounts
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
    /// CA certificate that signs kubelets' serving certificates, instead of the general one
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// CA key that signs kubelets' serving certificates
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA certificate that signs kubelets' client certificates, instead of the general one
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// CA key that signs kubelets' client certificates
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA certificate that signs the API server's client certificates, instead of the general one
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// CA key that signs the API server's client certificates
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA certificate of the signer kubernetes.io/legacy-unknown, instead of the general one
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// CA key of the signer kubernetes.io/legacy-unknown
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// Maximum lifetime of a signed certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = parse_unsigned)]
    pub cluster_signing_duration: Duration,
    /// Time without a heartbeat after which a node is marked unknown
    #[arg(long, value_name = "DURATION", default_value = "50s", value_parser = parse_unsigned)]
    pub node_monitor_grace_period: Duration,
    /// Time without a heartbeat after which a new node is marked unknown
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_unsigned)]
    pub node_startup_grace_period: Duration,
    /// Time without a use after which a generated token Secret is marked invalid, and then deleted
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = parse_positive)]
    pub legacy_service_account_token_clean_up_period: Duration,
    /// Number of terminated pods that are kept
    #[arg(long, value_name = "N", default_value_t = 12500)]
    pub terminated_pod_gc_threshold: usize,
    /// Interval between two reads of an autoscaler's metrics
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_unsigned)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Time after a pod's start in which its CPU usage counts only if measured while ready
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_unsigned)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Time for which an autoscaler keeps the highest recommendation before its target shrinks
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_unsigned)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Time after a pod's start in which changes of readiness count as its initial readiness
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_unsigned)]
    pub horizontal_pod_autoscaler_initial_readiness_delay: Duration,
    /// Deviation of the ratio of usage to target from 1 that does not scale the target
    #[arg(long, value_name = "RATIO", default_value_t = 0.1)]
    pub horizontal_pod_autoscaler_tolerance: f64,
    /// Leader election
    #[command(flatten)]
    pub election: LeaderElectionFlags,
    /// The own server
    #[command(flatten)]
    pub serving: ServingFlags,
    #[command(flatten)]
    workers: Workers,
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
}

/// Number of concurrent workers of each kind.
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
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_horizontal_pod_autoscaler_syncs: usize,
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
    #[arg(long, value_name = "N", default_value_t = 50)]
    concurrent_resourceclaim_syncs: usize,
    #[arg(long, value_name = "N", default_value_t = 5)]
    concurrent_validating_admission_policy_status_syncs: usize,
}

impl Options {
    /// Returns the number of a controller's workers; controllers without a flag need only a few.
    pub fn workers(&self, controller: &str) -> usize {
        let w = &self.workers;
        match controller {
            "deployment-controller" => w.concurrent_deployment_syncs,
            "replicaset-controller" => w.concurrent_replicaset_syncs,
            "replicationcontroller-controller" => w.concurrent_rc_syncs,
            "statefulset-controller" => w.concurrent_statefulset_syncs,
            "horizontal-pod-autoscaler-controller" => w.concurrent_horizontal_pod_autoscaler_syncs,
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
            "resourceclaim-controller" => w.concurrent_resourceclaim_syncs,
            "validatingadmissionpolicy-status-controller" => {
                w.concurrent_validating_admission_policy_status_syncs
            }
            // As upstream, without a flag.
            "storage-version-migrator-controller" => 5,
            _ => 2,
        }
        // Without a worker a controller would be idle without a sign. The maximum protects the API
        // server from a mistyped number.
        .clamp(1, 64)
    }

    /// Returns the settings of the horizontal pod autoscaler with `workers` workers.
    pub fn autoscaler(&self, workers: usize) -> controllers_workloads::autoscale::Config {
        controllers_workloads::autoscale::Config {
            workers,
            period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            tolerance: self.horizontal_pod_autoscaler_tolerance,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
        }
    }

    /// Checks the pool of addresses for load balancers.
    ///
    /// # Errors
    /// It has addresses of pods or Services.
    pub fn check_load_balancer_pool(&self) -> anyhow::Result<()> {
        let Some(pool) = &self.load_balancer_pool else {
            return Ok(());
        };
        let networks = [
            ("--cluster-cidr", &self.cluster_cidr),
            ("--service-cluster-ip-range", &self.service_cluster_ip_range),
        ];
        for (flag, ranges) in networks {
            if let Some(range) = ranges.iter().find(|range| pool.overlaps(range)) {
                bail!(
                    "--load-balancer-pool has addresses of {flag} {range}; take them from the network of the nodes"
                );
            }
        }
        Ok(())
    }

    /// Returns the ranges of nodes' subnets; empty if none are to be allocated.
    pub fn node_ranges(&self) -> anyhow::Result<Vec<Range>> {
        if !self.allocate_node_cidrs {
            return Ok(Vec::new());
        }
        // Nodes would stay without podCIDR, and their network plugins would never become ready, so
        // this fails at the start.
        if self.cluster_cidr.is_empty() {
            bail!("--allocate-node-cidrs needs --cluster-cidr");
        }
        self.cluster_cidr
            .iter()
            .map(|net| self.range(*net))
            .collect()
    }

    fn range(&self, cluster: IpNet) -> anyhow::Result<Range> {
        let (named, usual) = match cluster {
            IpNet::V4(_) => (self.node_cidr_mask_size_ipv4, 24),
            IpNet::V6(_) => (self.node_cidr_mask_size_ipv6, 64),
        };
        // Upstream rejects the general flag in dual-stack clusters; here it applies to a family
        // without a flag of its own.
        let mask = named.or(self.node_cidr_mask_size).unwrap_or(usual);
        if mask < cluster.prefix_len() || mask > cluster.max_prefix_len() {
            bail!("--node-cidr-mask-size {mask} does not fit --cluster-cidr {cluster}");
        }
        // Upstream holds one bit per subnet and therefore rejects such ranges; a command line must
        // not work with only one of both.
        if matches!(cluster, IpNet::V6(_)) && mask - cluster.prefix_len() > MOST_SUBNET_BITS {
            bail!(
                "--node-cidr-mask-size {mask} cuts --cluster-cidr {cluster} into more than 2^{MOST_SUBNET_BITS} subnets"
            );
        }
        Ok(Range {
            cluster: cluster.trunc(),
            mask,
        })
    }
}

/// Parses a duration that is not zero.
fn parse_positive(text: &str) -> Result<Duration, String> {
    let duration = parse_unsigned(text).map_err(|error| error.to_string())?;
    match duration.is_zero() {
        true => Err("it must be greater than zero".to_owned()),
        false => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

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
        assert!(!options.election.leader_elect);
        assert_eq!(options.node_ranges().unwrap()[0].mask, 24);
        assert!(Options::try_parse_from(["x", "--no-such-flag"]).is_err());
    }

    #[test]
    fn load_balancer_pool_is_outside_of_other_networks() {
        for (pool, expect) in [
            ("192.0.2.100-192.0.2.120,2001:db8::/120", true),
            ("10.244.255.0/24", false),
            ("192.0.2.1,10.96.0.7", false),
        ] {
            let args = [
                "x",
                "--cluster-cidr=10.244.0.0/16",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--load-balancer-pool",
                pool,
            ];
            let options = Options::try_parse_from(args).unwrap();
            assert_eq!(options.check_load_balancer_pool().is_ok(), expect, "{pool}");
        }
        assert!(Options::try_parse_from(["x", "--load-balancer-pool=10.0.0.300"]).is_err());
    }

    #[test]
    fn settings_of_the_autoscaler_are_upstreams_or_those_of_flags() {
        let read = |words: &[&str]| {
            let options = Options::try_parse_from(words).unwrap();
            let workers = options.workers("horizontal-pod-autoscaler-controller");
            let config = options.autoscaler(workers);
            let seconds = [
                config.downscale_stabilization,
                config.cpu_initialization_period,
                config.initial_readiness_delay,
            ]
            .map(|duration| duration.as_secs());
            (config.workers, seconds, config.tolerance)
        };
        assert_eq!(read(&["x"]), (5, [300, 300, 30], 0.1));
        let all = [
            "x",
            "--concurrent-horizontal-pod-autoscaler-syncs=7",
            "--horizontal-pod-autoscaler-downscale-stabilization=1m0s",
            "--horizontal-pod-autoscaler-cpu-initialization-period=20s",
            "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
            "--horizontal-pod-autoscaler-tolerance=0.25",
        ];
        assert_eq!(read(&all), (7, [60, 20, 0], 0.25));
    }

    /// Parses a distribution's command line, which must be accepted; warnings are allowed.
    fn start(words: &[&str]) -> Options {
        let words = words.iter().map(|word| std::ffi::OsString::from(*word));
        let accepted = base_cli::accept_upstream_flags(words, UPSTREAM_FLAGS);
        assert_eq!(accepted.refusals, Vec::<String>::new());
        Options::try_parse_from(accepted.arguments).unwrap()
    }

    #[test]
    fn flags_of_kubeadm_k3s_and_kops_are_accepted() {
        start(&[
            "kubeadm",
            "--allocate-node-cidrs=true",
            "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--bind-address=127.0.0.1",
            "--client-ca-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-cidr=10.244.0.0/16",
            "--cluster-name=kubernetes",
            "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
            "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
            "--controllers=*,bootstrapsigner,tokencleaner",
            "--kubeconfig=/etc/kubernetes/controller-manager.conf",
            "--leader-elect=true",
            "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
            "--root-ca-file=/etc/kubernetes/pki/ca.crt",
            "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
            "--service-cluster-ip-range=10.96.0.0/12",
            "--use-service-account-credentials=true",
        ]);
        let k3s = start(&[
            "k3s",
            "--allocate-node-cidrs=true",
            "--authentication-kubeconfig=c",
            "--authorization-kubeconfig=c",
            "--bind-address=127.0.0.1",
            "--cluster-cidr=10.42.0.0/16",
            "--cluster-signing-kube-apiserver-client-cert-file=client-ca.crt",
            "--cluster-signing-kube-apiserver-client-key-file=client-ca.key",
            "--cluster-signing-kubelet-client-cert-file=client-ca.crt",
            "--cluster-signing-kubelet-client-key-file=client-ca.key",
            "--cluster-signing-kubelet-serving-cert-file=server-ca.crt",
            "--cluster-signing-kubelet-serving-key-file=server-ca.key",
            "--cluster-signing-legacy-unknown-cert-file=server-ca.crt",
            "--cluster-signing-legacy-unknown-key-file=server-ca.key",
            "--configure-cloud-routes=false",
            "--controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle",
            "--kubeconfig=c",
            "--profiling=false",
            "--root-ca-file=r",
            "--secure-port=10257",
            "--service-account-private-key-file=s",
            "--service-cluster-ip-range=10.43.0.0/16",
            "--tls-cert-file=t",
            "--tls-private-key-file=k",
            "--use-service-account-credentials=true",
        ]);
        let signers: Vec<_> = k3s
            .signers()
            .unwrap()
            .into_iter()
            .map(|(name, cert, _)| (name, cert.clone()))
            .collect();
        assert_eq!(signers.len(), 4);
        assert!(
            signers.contains(&(
                controllers_certificates::KUBELET_SERVING,
                "server-ca.crt".into()
            )),
            "{signers:?}"
        );
        let kops = start(&[
            "kops",
            "--allocate-node-cidrs=true",
            "--attach-detach-reconcile-sync-period=1m0s",
            "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
            "--cloud-provider=external",
            "--cluster-cidr=100.96.0.0/11",
            "--cluster-name=example.k8s.local",
            "--cluster-signing-cert-file=c",
            "--cluster-signing-key-file=k",
            "--configure-cloud-routes=false",
            "--feature-gates=InTreePluginAWSUnregister=true",
            "--flex-volume-plugin-dir=/var/lib/kubelet/volumeplugins/",
            "--kube-api-burst=30",
            "--kube-api-qps=20",
            "--leader-elect=true",
            "--profiling=false",
            "--tls-cert-file=t",
            "--tls-private-key-file=k",
            "--use-service-account-credentials=true",
            "--v=2",
        ]);
        assert_eq!(kops.access.authorization_always_allow_paths.len(), 4);
        assert_eq!(kops.signers().unwrap().len(), 4);
    }

    #[test]
    fn security_settings_that_are_not_implemented_stop_the_start() {
        for flag in [
            "--tls-curve-preferences=29",
            "--disable-http2-serving",
            "--master=https://other:6443",
        ] {
            let words = ["x", flag].into_iter().map(std::ffi::OsString::from);
            let accepted = base_cli::accept_upstream_flags(words, UPSTREAM_FLAGS);
            assert_eq!(accepted.refusals.len(), 1, "{flag}");
        }
    }

    #[test]
    fn reason_of_every_flag_is_its_own() {
        for flag in UPSTREAM_FLAGS {
            assert!(
                !flag.reason.contains("not implemented") && !flag.reason.ends_with('.'),
                "{}",
                flag.name
            );
        }
        let mut names: Vec<_> = UPSTREAM_FLAGS.iter().map(|flag| flag.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), UPSTREAM_FLAGS.len());
    }

    #[test]
    fn signers_have_their_own_pair_or_the_general_one() {
        let signers = |words: &[&str]| {
            Options::try_parse_from(words)
                .unwrap()
                .signers()
                .map(|all| all.len())
                .ok()
        };
        let own = [
            "--cluster-signing-kubelet-client-cert-file=c",
            "--cluster-signing-kubelet-client-key-file=k",
        ];
        let general = [
            "--cluster-signing-cert-file=c",
            "--cluster-signing-key-file=k",
        ];
        assert_eq!(signers(&["x"]), Some(0));
        assert_eq!(signers(&["x", own[0], own[1]]), Some(1));
        assert_eq!(signers(&["x", general[0], general[1]]), Some(4));
        assert_eq!(signers(&["x", general[0]]), None);
        assert_eq!(
            signers(&["x", own[0], own[1], general[0], general[1]]),
            None
        );
    }
}
