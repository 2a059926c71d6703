//! Merges flags and the KubeletConfiguration file into settings. A flag overrides the file.

mod file;
mod flags;
mod kernel;
mod labels;
mod parse;
mod serving;
#[cfg(test)]
mod tests;
mod unsupported;

pub use file::{Configuration, honoured_fields, read_configuration};
pub use flags::Flags;
pub use serving::ServingSettings;
pub use unsupported::{UPSTREAM_FIELDS, UPSTREAM_FLAGS};

use anyhow::Context;
use api_meta::Quantity;
use k8s_openapi::api::core::v1::Taint;
use node_volumes::Mounter;
use parse::{parse_bytes, parse_duration, prefer_flag};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Resources that can be reserved for the system.
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// The kubelet's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the Node object.
    pub node_name: String,
    /// Addresses of the node, the primary one first.
    pub node_ips: Vec<IpAddr>,
    /// Access to the API server.
    pub credentials: CredentialSettings,
    /// `unix:///...`, or `simulated:` for the test kit's runtime, with the /16 of its pods.
    pub runtime_endpoint: String,
    /// Directory of volumes, certificates and pods' files.
    pub root_dir: PathBuf,
    /// Directory of container logs.
    pub logs_dir: PathBuf,
    /// Directory of static pods' manifests.
    pub static_pods: Option<PathBuf>,
    /// Directory of image archives that are imported at the start.
    pub image_archives: Option<PathBuf>,
    /// Create and update the Node object.
    pub register: bool,
    /// Taints of a new node.
    pub taints: Vec<Taint>,
    /// Labels of the node in addition to the standard ones.
    pub labels: BTreeMap<String, String>,
    /// The servers for HTTPS and health checks.
    pub serving: ServingSettings,
    /// DNS servers of pods.
    pub cluster_dns: Vec<String>,
    /// DNS domain of the cluster.
    pub cluster_domain: String,
    /// Path of the node's resolv.conf.
    pub resolv_conf: PathBuf,
    /// Maximum number of pods.
    pub max_pods: u32,
    /// Parent of the pods' cgroups; None creates none.
    pub cgroup_root: Option<String>,
    /// Limit of processes and threads of a pod.
    pub pod_pids: Option<u64>,
    /// Intervals of the node's heartbeats.
    pub reporting: ReportingSettings,
    /// Size in bytes at which log files are rotated.
    pub log_size: u64,
    /// Maximum number of log files of one container, the open one included.
    pub log_files: usize,
    /// Resources reserved for the system: cpu, memory, ephemeral-storage, pid.
    pub reserved: BTreeMap<String, Quantity>,
    /// Unsafe sysctls that pods may set.
    pub unsafe_sysctls: Vec<String>,
    /// Containers without a seccomp profile get the runtime's default profile.
    pub seccomp_default: bool,
    /// Mounts volumes, or only simulates mounting.
    pub mounter: Mounter,
    /// The configuration as it was read, for `/configz`.
    pub source: serde_json::Value,
}

/// Credentials for the API server, and the certificates that the cluster signs.
#[derive(Clone, Debug)]
pub struct CredentialSettings {
    /// Access to the API server; without it only static pods run.
    pub kubeconfig: Option<PathBuf>,
    /// Access with which a client certificate is requested if `kubeconfig` has no valid one.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of certificates that the kubelet makes or requests.
    pub cert_dir: PathBuf,
    /// Renew the client certificate.
    pub rotate_certificates: bool,
    /// Request the serving certificate from the cluster.
    pub server_tls_bootstrap: bool,
}

/// Intervals at which the kubelet reports the node's state.
#[derive(Clone, Debug)]
pub struct ReportingSettings {
    /// Duration of the node's Lease in seconds; it is renewed four times as often.
    pub lease_seconds: i32,
    /// Interval between two reads of the node's state.
    pub status_every: Duration,
    /// Interval between two writes of an unchanged status.
    pub report_every: Duration,
}

impl Settings {
    /// Returns whether the runtime is the simulated one.
    pub fn simulated(&self) -> bool {
        self.runtime_endpoint.starts_with("simulated:")
    }

    /// Returns the /16 of the simulated pods' addresses, if the endpoint names one: the pods of
    /// several simulated nodes must not have the same addresses.
    pub fn simulated_network(&self) -> Option<Ipv4Addr> {
        self.runtime_endpoint
            .strip_prefix("simulated:")?
            .parse()
            .ok()
    }
}

/// Merges flags and file.
///
/// # Errors
/// An invalid value, with its name.
pub fn read_settings(flags: &Flags) -> anyhow::Result<Settings> {
    let (file, source) = read_configuration(flags.config.as_deref(), flags.config_dir.as_deref())?;
    let node_ips = choose_node_ips(flags)?;
    let simulated = flags.simulated
        || flags
            .container_runtime_endpoint
            .as_deref()
            .is_some_and(|e| e.starts_with("simulated:"));
    // Before anything is created on the node.
    check_kernel(flags, &file, simulated)?;
    check_cgroup_driver(prefer_flag(&flags.cgroup_driver, &file.cgroup_driver).as_deref())?;
    Ok(Settings {
        node_name: choose_node_name(flags),
        node_ips,
        credentials: read_credential_settings(flags, &file)?,
        runtime_endpoint: choose_runtime_endpoint(flags, &file, simulated),
        logs_dir: choose_logs_dir(flags, &file, simulated),
        root_dir: flags.root_dir.clone(),
        static_pods: prefer_flag(&flags.pod_manifest_path, &file.static_pod_path),
        image_archives: flags.image_archives.clone(),
        // Defaults are those of KubeletConfiguration, so that one file gives the same node here and
        // upstream.
        register: flags.register_node.or(file.register_node).unwrap_or(true),
        taints: choose_taints(flags, &file)?,
        labels: labels::read_labels(flags)?,
        serving: serving::read_serving_settings(flags, &file)?,
        cluster_dns: flags
            .cluster_dns
            .clone()
            .or(file.cluster_dns.clone())
            .unwrap_or_default(),
        cluster_domain: prefer_flag(&flags.cluster_domain, &file.cluster_domain)
            .unwrap_or_else(|| "cluster.local".into()),
        resolv_conf: prefer_flag(&flags.resolv_conf, &file.resolv_conf)
            .unwrap_or_else(|| "/etc/resolv.conf".into()),
        max_pods: flags.max_pods.or(file.max_pods).unwrap_or(110),
        cgroup_root: choose_cgroup_root(flags, &file, simulated),
        pod_pids: choose_pod_pids(flags, &file),
        reporting: read_reporting_settings(flags, &file)?,
        log_size: read_log_size(flags, &file)?,
        log_files: choose_log_files(flags, &file),
        reserved: sum_reserved(flags, &file)?,
        unsafe_sysctls: flags
            .allowed_unsafe_sysctls
            .clone()
            .or(file.allowed_unsafe_sysctls.clone())
            .unwrap_or_default(),
        seccomp_default: flags
            .seccomp_default
            .or(file.seccomp_default)
            .unwrap_or(false),
        mounter: if simulated {
            Mounter::Plain
        } else {
            Mounter::Kernel
        },
        source,
    })
}

/// Reads the paths of credentials, and which certificates the cluster signs.
fn read_credential_settings(
    flags: &Flags,
    file: &Configuration,
) -> anyhow::Result<CredentialSettings> {
    Ok(CredentialSettings {
        kubeconfig: flags.kubeconfig.clone(),
        bootstrap_kubeconfig: flags.bootstrap_kubeconfig.clone(),
        cert_dir: choose_cert_dir(flags)?,
        rotate_certificates: flags
            .rotate_certificates
            .or(file.rotate_certificates)
            .unwrap_or(false),
        server_tls_bootstrap: flags
            .rotate_server_certificates
            .or(file.server_tls_bootstrap)
            .unwrap_or(false),
    })
}

fn read_reporting_settings(
    flags: &Flags,
    file: &Configuration,
) -> anyhow::Result<ReportingSettings> {
    Ok(ReportingSettings {
        // A Lease of 0 s would have expired before its first renewal.
        lease_seconds: file
            .node_lease_duration_seconds
            .filter(|s| *s > 0)
            .unwrap_or(40),
        status_every: read_status_interval(flags, file)?,
        report_every: parse_duration(
            file.node_status_report_frequency.as_deref(),
            300,
            "nodeStatusReportFrequency",
        )?,
    })
}

/// Returns the parent of the pods' cgroups, or None if the kubelet makes no cgroups.
fn choose_cgroup_root(flags: &Flags, file: &Configuration, simulated: bool) -> Option<String> {
    let enabled = flags.cgroups_per_qos.or(file.cgroups_per_qos);
    // A simulated node has no processes to limit, and usually no rights to write cgroups.
    if simulated || !enabled.unwrap_or(true) {
        return None;
    }
    let root = flags.cgroup_root.clone().or(file.cgroup_root.clone());
    Some(root.unwrap_or_default())
}

/// Returns the directory of certificates. Absolute, since a kubeconfig elsewhere refers to it.
fn choose_cert_dir(flags: &Flags) -> anyhow::Result<PathBuf> {
    let given = flags.cert_dir.clone();
    let folder = given.unwrap_or_else(|| flags.root_dir.join("pki"));
    std::path::absolute(&folder).with_context(|| format!("--cert-dir {}", folder.display()))
}

fn choose_runtime_endpoint(flags: &Flags, file: &Configuration, simulated: bool) -> String {
    let endpoint = prefer_flag(
        &flags.container_runtime_endpoint,
        &file.container_runtime_endpoint,
    );
    if simulated {
        let given = endpoint.filter(|endpoint| endpoint.starts_with("simulated:"));
        return given.unwrap_or_else(|| "simulated:".into());
    }
    endpoint.unwrap_or_else(|| "unix:///run/containerd/containerd.sock".into())
}

fn choose_logs_dir(flags: &Flags, file: &Configuration, simulated: bool) -> PathBuf {
    prefer_flag(&flags.pod_logs_dir, &file.pod_logs_dir).unwrap_or_else(|| {
        // A simulated node usually runs without rights to write below /var.
        if simulated {
            flags.root_dir.join("logs")
        } else {
            "/var/log/pods".into()
        }
    })
}

/// Returns the limit of processes per pod.
fn choose_pod_pids(flags: &Flags, file: &Configuration) -> Option<u64> {
    let limit = flags.pod_max_pids.or(file.pod_pids_limit)?;
    // Upstream's -1 means no limit.
    u64::try_from(limit).ok().filter(|n| *n > 0)
}

fn read_status_interval(flags: &Flags, file: &Configuration) -> anyhow::Result<Duration> {
    let text = prefer_flag(
        &flags.node_status_update_frequency,
        &file.node_status_update_frequency,
    );
    parse_duration(text.as_deref(), 10, "nodeStatusUpdateFrequency")
}

fn read_log_size(flags: &Flags, file: &Configuration) -> anyhow::Result<u64> {
    let text = prefer_flag(&flags.container_log_max_size, &file.container_log_max_size);
    parse_bytes(text.as_deref().unwrap_or("10Mi"), "containerLogMaxSize")
}

fn choose_log_files(flags: &Flags, file: &Configuration) -> usize {
    let files = flags
        .container_log_max_files
        .or(file.container_log_max_files);
    // With one file a rotation would remove the log that is being written.
    files.unwrap_or(5).max(2)
}

/// Checks the kernel's settings unless the node is simulated, which runs no processes.
fn check_kernel(flags: &Flags, file: &Configuration, simulated: bool) -> anyhow::Result<()> {
    let proc = std::path::Path::new("/proc");
    if !simulated
        && flags
            .protect_kernel_defaults
            .or(file.protect_kernel_defaults)
            .unwrap_or(false)
    {
        kernel::check_sysctls(proc)?;
    }
    if !simulated && flags.fail_swap_on.or(file.fail_swap_on).unwrap_or(true) {
        kernel::check_swap(proc)?;
    }
    Ok(())
}

/// Checks the cgroup driver. `systemd` only logs a warning, because kubeadm's configurations name
/// it.
fn check_cgroup_driver(driver: Option<&str>) -> anyhow::Result<()> {
    match driver {
        None | Some("cgroupfs") => {}
        Some("systemd") => tracing::warn!(
            "cgroupDriver systemd has no effect: pods' cgroups are made as plain directories, which a container runtime \
             with the systemd driver refuses; set the runtime's driver to cgroupfs (containerd: SystemdCgroup = false)"
        ),
        Some(other) => anyhow::bail!("cgroupDriver {other:?} is neither cgroupfs nor systemd"),
    }
    Ok(())
}

/// Sums the resources reserved for the system and for Kubernetes.
fn sum_reserved(flags: &Flags, file: &Configuration) -> anyhow::Result<BTreeMap<String, Quantity>> {
    let mut all: BTreeMap<String, Quantity> = BTreeMap::new();
    let read = |flag: &str, words: &Option<Vec<String>>| {
        let pairs = words.as_deref().map(flags::parse_pairs).transpose();
        pairs.with_context(|| flag.to_owned())
    };
    let system = read("--system-reserved", &flags.system_reserved)?;
    let system = system.or_else(|| file.system_reserved.clone());
    let kube = read("--kube-reserved", &flags.kube_reserved)?;
    let kube = kube.or_else(|| file.kube_reserved.clone());
    for (field, map) in [("systemReserved", system), ("kubeReserved", kube)] {
        for (name, text) in map.into_iter().flatten() {
            if !RESERVABLE.contains(&name.as_str()) {
                anyhow::bail!(
                    "{field}: {name:?} can't be reserved; {} can",
                    RESERVABLE.join(", ")
                );
            }
            let bad = |_| anyhow::anyhow!("{field}.{name}: {text:?} is no quantity");
            let amount = text.parse::<Quantity>().map_err(bad)?;
            if amount.milli_value() < 0 {
                anyhow::bail!("{field}.{name}: {text:?} is negative");
            }
            // Both reservations are kept from pods; upstream adds them as well.
            let sum = all
                .remove(&name)
                .map_or(amount, |before| before.plus(amount));
            all.insert(name, sum);
        }
    }
    Ok(all)
}

fn choose_node_name(flags: &Flags) -> String {
    let name = flags.hostname_override.clone();
    let name = name.unwrap_or_else(component::host_name);
    // The name becomes a label and a DNS name; upstream converts it in the same way.
    name.trim().to_ascii_lowercase()
}

fn choose_node_ips(flags: &Flags) -> anyhow::Result<Vec<IpAddr>> {
    let given = flags.node_ip.as_deref().unwrap_or_default();
    let parse = |text: &String| {
        text.parse::<IpAddr>()
            .map_err(|_| anyhow::anyhow!("--node-ip: {text:?} is no IP address"))
    };
    let ips: Vec<IpAddr> = given.iter().map(parse).collect::<anyhow::Result<_>>()?;
    Ok(if ips.is_empty() {
        vec![crate::node::default_address()]
    } else {
        ips
    })
}

fn choose_taints(flags: &Flags, file: &Configuration) -> anyhow::Result<Vec<Taint>> {
    // The flag replaces the list of the file as a whole.
    let Some(given) = &flags.register_with_taints else {
        return Ok(file.register_with_taints.clone().unwrap_or_default());
    };
    given
        .iter()
        .filter(|t| !t.is_empty())
        .map(|text| flags::parse_taint(text))
        .collect()
}
