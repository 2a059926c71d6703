//! Flags and the KubeletConfiguration file, merged into settings. A flag that is given wins over the file.

mod file;
mod flags;

pub use file::{Configuration, read};
pub use flags::{Flags, IGNORED_FLAGS};

use k8s_openapi::api::core::v1::Taint;
use node_volumes::Mounter;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Everything the kubelet can be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node.
    pub node_name: String,
    /// Addresses of the node, the main one first.
    pub node_ips: Vec<IpAddr>,
    /// Access to the API server; without it only static pods run.
    pub kubeconfig: Option<PathBuf>,
    /// `unix:///...`, or `simulated:` for the test kit's runtime.
    pub runtime_endpoint: String,
    /// Where volumes, certificates and pods' files live.
    pub root_dir: PathBuf,
    /// Where container logs live.
    pub logs_dir: PathBuf,
    /// Manifests of static pods.
    pub static_pods: Option<PathBuf>,
    /// Archives of images that are imported at the start.
    pub image_archives: Option<PathBuf>,
    /// Whether the node object is made and kept.
    pub register: bool,
    /// Taints of a new node.
    pub taints: Vec<Taint>,
    /// Labels of the node beside the standard ones.
    pub labels: BTreeMap<String, String>,
    /// Address of the HTTPS server.
    pub address: SocketAddr,
    /// Address of the plain health check; None turns it off.
    pub healthz: Option<SocketAddr>,
    /// Gets the port of the HTTPS server.
    pub port_file: Option<PathBuf>,
    /// Certificate and key of the HTTPS server; made up when not given.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// CA of client certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether requests without credentials are let in as `system:anonymous`.
    pub anonymous: bool,
    /// Whether tokens are shown to the API server.
    pub webhook_tokens: bool,
    /// Whether the API server decides what a client may do; otherwise whoever is known may do all.
    pub webhook_authorization: bool,
    /// Name servers of pods.
    pub cluster_dns: Vec<String>,
    /// Domain of the cluster.
    pub cluster_domain: String,
    /// The node's own resolv.conf.
    pub resolv_conf: PathBuf,
    /// Most pods.
    pub max_pods: u32,
    /// Parent of the pods' cgroups; None makes none.
    pub cgroup_root: Option<String>,
    /// Seconds between two heartbeats are a quarter of this.
    pub lease_seconds: i32,
    /// Between two looks at the node's own state.
    pub status_every: Duration,
    /// Between two unchanged status writes.
    pub report_every: Duration,
    /// Log files are rotated at this size.
    pub log_size: u64,
    /// Log files of one container, the open one included.
    pub log_files: usize,
    /// Kept back from pods: cpu, memory, ephemeral-storage.
    pub reserved: BTreeMap<String, String>,
    /// Unsafe sysctls that pods may set all the same.
    pub unsafe_sysctls: Vec<String>,
    /// How volumes come into being.
    pub mounter: Mounter,
    /// CIDR of pods, without an API server to say so.
    pub pod_cidr: Option<String>,
    /// The configuration as it was read, for `/configz`.
    pub source: serde_json::Value,
}

impl Settings {
    /// Whether the runtime is the simulated one.
    pub fn simulated(&self) -> bool {
        self.runtime_endpoint.starts_with("simulated:")
    }
}

/// Merges flags and file.
///
/// # Errors
/// A value that can't be used, by its name.
pub fn settings(flags: &Flags) -> anyhow::Result<Settings> {
    let (file, source) = match &flags.config {
        Some(path) => read(path)?,
        None => (Configuration::default(), serde_json::json!({})),
    };
    let node_ips = node_ips(flags)?;
    let listen = flags.address.or(file.address).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let healthz_port = flags.healthz_port.or(file.healthz_port).unwrap_or(10248);
    let healthz_address = file.healthz_bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let simulated =
        flags.simulated || flags.container_runtime_endpoint.as_deref().is_some_and(|e| e.starts_with("simulated:"));
    let endpoint = flags.container_runtime_endpoint.clone().or(file.container_runtime_endpoint.clone());
    let endpoint = endpoint.unwrap_or_else(|| "unix:///run/containerd/containerd.sock".into());
    let cgroups = file.cgroups_per_qos.unwrap_or(true) && !simulated;
    let cgroup_root = flags.cgroup_root.clone().or(file.cgroup_root.clone()).unwrap_or_default();
    Ok(Settings {
        node_name: node_name(flags)?,
        node_ips,
        kubeconfig: flags.kubeconfig.clone(),
        runtime_endpoint: if simulated { "simulated:".into() } else { endpoint },
        logs_dir: flags
            .pod_logs_dir
            .clone()
            .or(file.pod_logs_dir.clone())
            .unwrap_or_else(|| if simulated { flags.root_dir.join("logs") } else { "/var/log/pods".into() }),
        root_dir: flags.root_dir.clone(),
        static_pods: flags.pod_manifest_path.clone().or(file.static_pod_path.clone()),
        image_archives: flags.image_archives.clone(),
        register: flags.register_node.or(file.register_node).unwrap_or(true),
        taints: taints(flags, &file)?,
        labels: flags::pairs(flags.node_labels.as_deref().unwrap_or_default()),
        address: SocketAddr::new(listen, flags.port.or(file.port).unwrap_or(10250)),
        healthz: (healthz_port > 0).then(|| SocketAddr::new(healthz_address, healthz_port)),
        port_file: flags.port_file.clone(),
        tls: flags
            .tls_cert_file
            .clone()
            .or(file.tls_cert_file.clone())
            .zip(flags.tls_private_key_file.clone().or(file.tls_private_key_file.clone())),
        client_ca: flags.client_ca_file.clone().or_else(|| file.client_ca()),
        anonymous: flags.anonymous_auth.or_else(|| file.anonymous()).unwrap_or(false),
        webhook_tokens: flags.authentication_token_webhook.or_else(|| file.webhook_tokens()).unwrap_or(true),
        webhook_authorization: match flags.authorization_mode.clone().or_else(|| file.authorization_mode()) {
            Some(mode) => mode != "AlwaysAllow",
            None => true,
        },
        cluster_dns: flags.cluster_dns.clone().or(file.cluster_dns.clone()).unwrap_or_default(),
        cluster_domain: flags
            .cluster_domain
            .clone()
            .or(file.cluster_domain.clone())
            .unwrap_or_else(|| "cluster.local".into()),
        resolv_conf: flags
            .resolv_conf
            .clone()
            .or(file.resolv_conf.clone())
            .unwrap_or_else(|| "/etc/resolv.conf".into()),
        max_pods: flags.max_pods.or(file.max_pods).unwrap_or(110),
        cgroup_root: cgroups.then_some(cgroup_root),
        lease_seconds: file.node_lease_duration_seconds.filter(|s| *s > 0).unwrap_or(40),
        status_every: duration(file.node_status_update_frequency.as_deref(), 10, "nodeStatusUpdateFrequency")?,
        report_every: duration(file.node_status_report_frequency.as_deref(), 300, "nodeStatusReportFrequency")?,
        log_size: bytes(file.container_log_max_size.as_deref().unwrap_or("10Mi"), "containerLogMaxSize")?,
        log_files: file.container_log_max_files.unwrap_or(5).max(2),
        reserved: reserved(&file),
        unsafe_sysctls: flags
            .allowed_unsafe_sysctls
            .clone()
            .or(file.allowed_unsafe_sysctls.clone())
            .unwrap_or_default(),
        mounter: if simulated { Mounter::Plain } else { Mounter::Kernel },
        pod_cidr: file.pod_cidr.clone(),
        source,
    })
}

fn reserved(file: &Configuration) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, api_meta::Quantity> = BTreeMap::new();
    for (name, amount) in file.system_reserved.iter().chain(&file.kube_reserved).flatten() {
        let Ok(amount) = amount.parse::<api_meta::Quantity>() else { continue };
        let sum = all.remove(name).map_or(amount, |before| before.plus(amount));
        all.insert(name.clone(), sum);
    }
    all.into_iter().map(|(name, amount)| (name, amount.to_string())).collect()
}

fn node_name(flags: &Flags) -> anyhow::Result<String> {
    let name = match &flags.hostname_override {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()?.to_string_lossy().into_owned(),
    };
    Ok(name.trim().to_ascii_lowercase())
}

fn node_ips(flags: &Flags) -> anyhow::Result<Vec<IpAddr>> {
    let given = flags.node_ip.as_deref().unwrap_or_default();
    let parse =
        |text: &String| text.parse::<IpAddr>().map_err(|_| anyhow::anyhow!("--node-ip: {text:?} is no IP address"));
    let ips: Vec<IpAddr> = given.iter().map(parse).collect::<anyhow::Result<_>>()?;
    Ok(if ips.is_empty() { vec![crate::node::default_address()] } else { ips })
}

fn taints(flags: &Flags, file: &Configuration) -> anyhow::Result<Vec<Taint>> {
    let Some(given) = &flags.register_with_taints else {
        return Ok(file.register_with_taints.clone().unwrap_or_default());
    };
    given.iter().filter(|t| !t.is_empty()).map(|text| flags::taint(text)).collect()
}

fn duration(text: Option<&str>, default: u64, name: &str) -> anyhow::Result<Duration> {
    let Some(text) = text else { return Ok(Duration::from_secs(default)) };
    let mut total = 0f64;
    let mut number = String::new();
    let mut unit = String::new();
    let bad = || anyhow::anyhow!("{name}: {text:?} is no duration such as 10s or 5m0s");
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() || c == '.' {
            number.push(c)
        } else {
            unit.push(c)
        }
        let ends = chars.peek().is_none_or(|n| n.is_ascii_digit()) && !unit.is_empty();
        if ends {
            let scale = match unit.as_str() {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return Err(bad()),
            };
            total += number.parse::<f64>().map_err(|_| bad())? * scale;
            number.clear();
            unit.clear();
        }
    }
    if number.is_empty() {
        Ok(Duration::from_secs_f64(if total > 0.0 { total } else { default as f64 }))
    } else {
        Err(bad())
    }
}

fn bytes(text: &str, name: &str) -> anyhow::Result<u64> {
    let quantity =
        text.parse::<api_meta::Quantity>().map_err(|_| anyhow::anyhow!("{name}: {text:?} is no quantity"))?;
    Ok(u64::try_from(quantity.value()).unwrap_or_default())
}
