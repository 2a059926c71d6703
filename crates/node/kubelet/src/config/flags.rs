//! The command line: upstream's flags that have an effect here.

use anyhow::Context;
use api_meta::names;
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
    /// Directory of .conf files that override the configuration, in the order of their names
    #[arg(long, value_name = "DIR")]
    pub config_dir: Option<PathBuf>,
    /// Access to the API server; without it only static pods run
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Access with which a client certificate is requested if --kubeconfig has no valid one;
    /// --kubeconfig is then written
    #[arg(long, value_name = "FILE", requires = "kubeconfig")]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of certificates that the kubelet makes or requests [default: pki in --root-dir]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// Renew the client certificate before it expires
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub rotate_certificates: Option<bool>,
    /// Request the serving certificate from the cluster, and renew it before it expires
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub rotate_server_certificates: Option<bool>,
    /// Name of the node instead of the machine's host name
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Addresses of the node, comma-separated, the primary one first
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Option<Vec<String>>,
    /// Socket of the container runtime, or `simulated:`
    #[arg(long, value_name = "ENDPOINT")]
    pub container_runtime_endpoint: Option<String>,
    /// Run pods on a simulated runtime in this process: no root, no containers
    #[arg(long)]
    pub simulated: bool,
    /// Directory of volumes and pods' files
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Directory of container logs
    #[arg(long, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,
    /// Directory of static pods' manifests
    #[arg(long, value_name = "DIR")]
    pub pod_manifest_path: Option<PathBuf>,
    /// Directory of image archives (tar) imported into containerd at the start
    #[arg(long, value_name = "DIR")]
    pub image_archives: Option<PathBuf>,
    /// Create and update the Node object
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
    /// Port of the HTTPS server; 0 picks a free one
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Write the bound port of the HTTPS server to this file
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// Port of the plain-text health check on localhost; 0 disables it
    #[arg(long, value_name = "PORT")]
    pub healthz_port: Option<u16>,
    /// Certificate of the HTTPS server; self-signed if absent
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the HTTPS server
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA of client certificates
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Accept requests without credentials as system:anonymous
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: Option<bool>,
    /// Authenticate bearer tokens by TokenReview
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub authentication_token_webhook: Option<bool>,
    /// Webhook or AlwaysAllow
    #[arg(long, value_name = "MODE")]
    pub authorization_mode: Option<String>,
    /// DNS servers of pods, comma-separated
    #[arg(long, value_name = "IPS", value_delimiter = ',')]
    pub cluster_dns: Option<Vec<String>>,
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN")]
    pub cluster_domain: Option<String>,
    /// Path of the node's resolv.conf
    #[arg(long, value_name = "FILE")]
    pub resolv_conf: Option<PathBuf>,
    /// Maximum number of pods on this node
    #[arg(long, value_name = "N")]
    pub max_pods: Option<u32>,
    /// Parent of the pods' cgroups
    #[arg(long, value_name = "PATH")]
    pub cgroup_root: Option<String>,
    /// cgroup driver: cgroupfs; systemd is accepted with a warning
    #[arg(long, value_name = "DRIVER")]
    pub cgroup_driver: Option<String>,
    /// Unsafe sysctls that pods may set, comma-separated; a trailing * matches the rest
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    /// Give containers without a seccomp profile the runtime's default profile
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub seccomp_default: Option<bool>,
    /// Limit of processes and threads of a pod; -1 sets no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Minimum TLS version of the server: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<String>,
    /// Cipher suites that the server offers for TLS 1.2, by Go's names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Option<Vec<String>>,
    /// Serve exec, attach, port-forward, run and logs
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_debugging_handlers: Option<bool>,
    /// Fail to start if kernel settings differ from those of Kubernetes
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub protect_kernel_defaults: Option<bool>,
    /// Fail to start if swap is on
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub fail_swap_on: Option<bool>,
    /// Create cgroups for pods beneath their QoS class
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub cgroups_per_qos: Option<bool>,
    /// Resources reserved for the system: name=quantity, comma-separated
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    pub system_reserved: Option<Vec<String>>,
    /// Resources reserved for Kubernetes: name=quantity, comma-separated
    #[arg(long, value_name = "AMOUNTS", value_delimiter = ',')]
    pub kube_reserved: Option<Vec<String>>,
    /// Address of the plain-text health check
    #[arg(long, value_name = "IP")]
    pub healthz_bind_address: Option<IpAddr>,
    /// Size at which log files are rotated
    #[arg(long, value_name = "QUANTITY")]
    pub container_log_max_size: Option<String>,
    /// Maximum number of log files of one container
    #[arg(long, value_name = "N")]
    pub container_log_max_files: Option<usize>,
    /// Interval between two reads of the node's state
    #[arg(long, value_name = "DURATION")]
    pub node_status_update_frequency: Option<String>,
    /// How long the result of a TokenReview is cached
    #[arg(long, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Option<String>,
    /// How long an allowed SubjectAccessReview is cached
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long a denied SubjectAccessReview is cached
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<String>,
    /// Logging.
    #[command(flatten)]
    pub logs: base_telemetry::LogOptions,
}

/// Parses `key=value` words. Empty words and spaces around a key or a value are dropped, as by
/// upstream.
pub(crate) fn parse_pairs(words: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let words = words.iter().filter(|word| !word.is_empty());
    words
        .map(|word| {
            let (key, value) = word
                .split_once('=')
                .with_context(|| format!("{word:?} is no pair such as key=value"))?;
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

/// Parses `key=value:effect` or `key:effect`.
pub(crate) fn parse_taint(text: &str) -> anyhow::Result<Taint> {
    let bad = || {
        anyhow::anyhow!("--register-with-taints: {text:?} is no taint such as key=value:NoSchedule")
    };
    let (key, effect) = text.rsplit_once(':').ok_or_else(bad)?;
    // The API server would reject the whole Node, and the kubelet would retry for ever.
    let (key, value) = key
        .split_once('=')
        .map_or((key, None), |(k, v)| (k, Some(v)));
    let is_valid = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect)
        && names::qualified_name(key).is_empty()
        && value.is_none_or(|value| names::label_value(value).is_empty());
    if !is_valid {
        return Err(bad());
    }
    Ok(Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        time_added: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn taint_has_a_key_an_effect_and_perhaps_a_value() {
        for (text, expected) in [
            ("k=v:NoSchedule", Some(("k", Some("v"), "NoSchedule"))),
            ("k:NoExecute", Some(("k", None, "NoExecute"))),
            (
                "a.b/k=:PreferNoSchedule",
                Some(("a.b/k", Some(""), "PreferNoSchedule")),
            ),
            ("k=v", None),
            (":NoSchedule", None),
            ("=v:NoSchedule", None),
            ("k:x:NoSchedule", None),
            ("k=v=w:NoSchedule", None),
            ("k=v w:NoSchedule", None),
            ("k=v:Never", None),
        ] {
            let taint = parse_taint(text).ok();
            let found = taint
                .as_ref()
                .map(|t| (t.key.as_str(), t.value.as_deref(), t.effect.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
