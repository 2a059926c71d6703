//! The KubeletConfiguration file, `kubelet.config.k8s.io/v1beta1`.
//!
//! Every field of upstream's is known by name; those that mean something here are read, others are let be with a
//! warning. A name that upstream does not know is an error that names it and the nearest known one.

use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The fields that mean something here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Configuration {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub healthz_port: Option<u16>,
    pub healthz_bind_address: Option<IpAddr>,
    pub authentication: Value,
    pub authorization: Value,
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Option<Vec<String>>,
    pub cluster_domain: Option<String>,
    pub static_pod_path: Option<PathBuf>,
    pub pod_logs_dir: Option<PathBuf>,
    pub max_pods: Option<u32>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub cgroup_root: Option<String>,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: Option<bool>,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: Option<String>,
    pub resolv_conf: Option<PathBuf>,
    pub node_status_update_frequency: Option<String>,
    pub node_status_report_frequency: Option<String>,
    pub node_lease_duration_seconds: Option<i32>,
    pub container_log_max_size: Option<String>,
    pub container_log_max_files: Option<usize>,
    pub container_runtime_endpoint: Option<String>,
    pub register_node: Option<bool>,
    pub register_with_taints: Option<Vec<Taint>>,
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
}

const KNOWN: &[&str] = &[
    "address",
    "port",
    "healthzPort",
    "healthzBindAddress",
    "authentication",
    "authorization",
    "clusterDNS",
    "clusterDomain",
    "staticPodPath",
    "podLogsDir",
    "maxPods",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "cgroupRoot",
    "cgroupsPerQOS",
    "podCIDR",
    "resolvConf",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "nodeLeaseDurationSeconds",
    "containerLogMaxSize",
    "containerLogMaxFiles",
    "containerRuntimeEndpoint",
    "registerNode",
    "registerWithTaints",
    "cgroupDriver",
    "failSwapOn",
    "systemReserved",
    "kubeReserved",
    "allowedUnsafeSysctls",
    "apiVersion",
    "kind",
];

/// Known to upstream, without a meaning here.
const IGNORED: &[&str] = &[
    "enableServer",
    "syncFrequency",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "staticPodURL",
    "staticPodURLHeader",
    "readOnlyPort",
    "tlsCipherSuites",
    "tlsMinVersion",
    "tlsCurvePreferences",
    "rotateCertificates",
    "serverTLSBootstrap",
    "registryPullQPS",
    "registryBurst",
    "imagePullCredentialsVerificationPolicy",
    "preloadedImagesVerificationAllowlist",
    "eventRecordQPS",
    "eventBurst",
    "enableDebuggingHandlers",
    "enableContentionProfiling",
    "oomScoreAdj",
    "streamingConnectionIdleTimeout",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "volumeStatsAggPeriod",
    "kubeletCgroups",
    "systemCgroups",
    "cpuManagerPolicy",
    "singleProcessOOMKill",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "memoryManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "qosReserved",
    "runtimeRequestTimeout",
    "hairpinMode",
    "podPidsLimit",
    "runOnce",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "nodeStatusMaxImages",
    "maxOpenFiles",
    "contentType",
    "kubeAPIQPS",
    "kubeAPIBurst",
    "serializeImagePulls",
    "maxParallelImagePulls",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionPressureTransitionPeriod",
    "evictionMaxPodGracePeriod",
    "evictionMinimumReclaim",
    "mergeDefaultEvictionSettings",
    "podsPerCore",
    "enableControllerAttachDetach",
    "protectKernelDefaults",
    "makeIPTablesUtilChains",
    "iptablesMasqueradeBit",
    "iptablesDropBit",
    "featureGates",
    "memorySwap",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "configMapAndSecretChangeDetectionStrategy",
    "reservedSystemCPUs",
    "showHiddenMetricsForVersion",
    "systemReservedCgroup",
    "kubeReservedCgroup",
    "enforceNodeAllocatable",
    "volumePluginDir",
    "providerID",
    "kernelMemcgNotification",
    "logging",
    "enableSystemLogHandler",
    "enableSystemLogQuery",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "shutdownGracePeriodByPodPriority",
    "crashLoopBackOff",
    "reservedMemory",
    "enableProfilingHandler",
    "enableDebugFlagsHandler",
    "seccompDefault",
    "memoryThrottlingFactor",
    "tracing",
    "localStorageCapacityIsolation",
    "imageServiceEndpoint",
    "failCgroupV1",
    "userNamespaces",
];

/// Reads and checks a file; the fields, and the whole as it was written.
///
/// # Errors
/// What is wrong with it and where, in one sentence.
pub fn read(path: &Path) -> anyhow::Result<(Configuration, Value)> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| anyhow::anyhow!("can't read configuration {shown}: {e}"))?;
    let value: Value = serde_yaml::from_str(&text).map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
    check(&value).map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
    // From the text: its errors name the field and the line.
    let read = serde_yaml::from_str(&text).map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
    Ok((read, value))
}

fn check(value: &Value) -> anyhow::Result<()> {
    let map = value.as_object().ok_or_else(|| anyhow::anyhow!("not a KubeletConfiguration object"))?;
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = (text("apiVersion"), text("kind"));
    if kind != ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration") {
        anyhow::bail!("apiVersion and kind are {kind:?}, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration");
    }
    for name in map.keys() {
        if IGNORED.contains(&name.as_str()) {
            tracing::warn!("configuration field {name} has no meaning here and is ignored");
        } else if !KNOWN.contains(&name.as_str()) {
            let all = KNOWN.iter().chain(IGNORED);
            let nearest = base_cli::nearest(name, all.copied()).unwrap_or_default();
            anyhow::bail!("unknown field {name:?}; the nearest known one is {nearest:?}");
        }
    }
    Ok(())
}

impl Configuration {
    /// `authentication.x509.clientCAFile`
    pub fn client_ca(&self) -> Option<PathBuf> {
        self.authentication
            .pointer("/x509/clientCAFile")
            .and_then(Value::as_str)
            .filter(|p| !p.is_empty())
            .map(PathBuf::from)
    }

    /// `authentication.anonymous.enabled`
    pub fn anonymous(&self) -> Option<bool> {
        self.authentication.pointer("/anonymous/enabled").and_then(Value::as_bool)
    }

    /// `authentication.webhook.enabled`
    pub fn webhook_tokens(&self) -> Option<bool> {
        self.authentication.pointer("/webhook/enabled").and_then(Value::as_bool)
    }

    /// `authorization.mode`
    pub fn authorization_mode(&self) -> Option<String> {
        self.authorization.get("mode").and_then(Value::as_str).map(str::to_owned)
    }
}
