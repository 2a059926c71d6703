//! The command line: upstream's flags that mean something here.

use clap::Parser;
use k8s_openapi::api::core::v1::Taint;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

/// The node agent: runs the pods that are bound to its node.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubelet", version = concat!("v1.36.2+ironclad.", env!("CARGO_PKG_VERSION")))]
pub struct Flags {
    /// KubeletConfiguration file; flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of .conf files that change the configuration, in the order of their names
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Access to the API server; without it only static pods run
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the node instead of the machine's host name
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Addresses of the node, comma-separated, the main one first
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Option<Vec<String>>,
    /// Socket of the container runtime, or `simulated:`
    #[arg(long, value_name = "ENDPOINT")]
    pub container_runtime_endpoint: Option<String>,
    /// Runs pods on a simulated runtime in this process: no root, no containers
    #[arg(long)]
    pub simulated: bool,
    /// Where volumes and pods' files live
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Where container logs live
    #[arg(long, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,
    /// Folder of static pods' manifests
    #[arg(long, value_name = "DIR")]
    pub pod_manifest_path: Option<PathBuf>,
    /// Folder of image archives (tar) imported into containerd at the start
    #[arg(long, value_name = "DIR")]
    pub image_archives: Option<PathBuf>,
    /// Whether to make and keep the node object
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub register_node: Option<bool>,
    /// Taints of a new node: key=value:effect, comma-separated
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    pub register_with_taints: Option<Vec<String>>,
    /// Labels of the node: key=value, comma-separated
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub node_labels: Option<Vec<String>>,
    /// Address that the server listens on
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,
    /// Port of the HTTPS server; 0 lets the kernel pick
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// File that gets the port of the HTTPS server
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Port of the plain health check on localhost; 0 turns it off
    #[arg(long, value_name = "PORT")]
    pub healthz_port: Option<u16>,
    /// Certificate of the HTTPS server; one is made when not given
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the HTTPS server
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA of client certificates
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are let in as system:anonymous
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: Option<bool>,
    /// Whether tokens are shown to the API server
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub authentication_token_webhook: Option<bool>,
    /// Webhook or AlwaysAllow
    #[arg(long, value_name = "MODE")]
    pub authorization_mode: Option<String>,
    /// Name servers of pods, comma-separated
    #[arg(long, value_name = "IPS", value_delimiter = ',')]
    pub cluster_dns: Option<Vec<String>>,
    /// Domain of the cluster
    #[arg(long, value_name = "DOMAIN")]
    pub cluster_domain: Option<String>,
    /// The node's own resolv.conf
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// Most pods on this node
    #[arg(long, value_name = "N")]
    pub max_pods: Option<u32>,
    /// Parent of the pods' cgroups
    #[arg(long, value_name = "PATH")]
    pub cgroup_root: Option<String>,
    /// How cgroups are made: cgroupfs; systemd is accepted with a warning
    #[arg(long, value_name = "DRIVER")]
    pub cgroup_driver: Option<String>,
    /// Unsafe sysctls that pods may set, comma-separated; a trailing * matches the rest
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    /// Whether containers without a seccomp profile get the runtime's
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub seccomp_default: Option<bool>,
    /// Processes and threads that a pod may have; -1 sets no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Oldest version of TLS that the server speaks: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,
    /// Whether exec, attach, port-forward, run and logs are served
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_debugging_handlers: Option<bool>,
    /// Whether kernel settings that differ from Kubernetes' stop the start
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub protect_kernel_defaults: Option<bool>,
    /// Whether swap stops the start
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub fail_swap_on: Option<bool>,
    /// Whether pods have cgroups of their own beneath their class's
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub cgroups_per_qos: Option<bool>,
    /// Kept back for the system: name=quantity, comma-separated
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    pub system_reserved: Option<Vec<String>>,
    /// Kept back for Kubernetes: name=quantity, comma-separated
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    pub kube_reserved: Option<Vec<String>>,
    /// Address of the plain health check
    #[arg(long, value_name = "IP")]
    pub healthz_bind_address: Option<IpAddr>,
    /// Log files are rotated at this size
    #[arg(long, value_name = "QUANTITY")]
    pub container_log_max_size: Option<String>,
    /// Log files of one container
    #[arg(long, value_name = "N")]
    pub container_log_max_files: Option<usize>,
    /// Time between two looks at the node's state
    #[arg(long, value_name = "DURATION")]
    pub node_status_update_frequency: Option<String>,
    /// How long an answer about a token is kept
    #[arg(long, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Option<String>,
    /// How long a permission is kept
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long a refusal is kept
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<String>,
    /// Logging.
    #[command(flatten)]
    pub logs: base_telemetry::LogOptions,
}

/// `key=value` words.
pub(crate) fn pairs(words: &[String]) -> BTreeMap<String, String> {
    let pair = |word: &String| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    words.iter().filter_map(pair).collect()
}

/// `key=value:effect` or `key:effect`.
pub(crate) fn taint(text: &str) -> anyhow::Result<Taint> {
    let bad = || anyhow::anyhow!("--register-with-taints: {text:?} is no taint such as key=value:NoSchedule");
    let (key, effect) = text.rsplit_once(':').ok_or_else(bad)?;
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(bad());
    }
    let (key, value) = key.split_once('=').map_or((key, None), |(k, v)| (k, Some(v.to_owned())));
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
}
