//! `KubeProxyConfiguration`. Fields of upstream's that mean nothing here are accepted; unknown ones are refused by name.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A configuration that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("configuration {path} can't be read: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: std::io::Error,
    },
    /// The file makes no sense.
    #[error("configuration {path} is not valid: {cause}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: serde_yaml::Error,
    },
    /// The kind or a value is not one that is known.
    #[error("configuration: {0}")]
    Value(String),
}

/// The configuration file's content.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// `kubeproxy.config.k8s.io/v1alpha1`
    pub api_version: String,
    /// `KubeProxyConfiguration`
    pub kind: String,
    /// `nftables` or empty.
    pub mode: String,
    /// Ranges of pods, separated by commas.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// How to reach the API server.
    pub client_connection: ClientConnection,
    /// `ip:port` of health checks.
    pub healthz_bind_address: String,
    /// `ip:port` of metrics.
    pub metrics_bind_address: String,
    /// The node's name.
    pub hostname_override: String,
    /// `primary` or ranges.
    pub node_port_addresses: Option<Vec<String>>,
    /// Settings of this mode.
    pub nftables: Nftables,

    // Accepted: settings of other modes and platforms, and of what the kernel decides here.
    bind_address: serde_yaml::Value,
    bind_address_hard_fail: serde_yaml::Value,
    config_sync_period: serde_yaml::Value,
    conntrack: serde_yaml::Value,
    detect_local: serde_yaml::Value,
    detect_local_mode: serde_yaml::Value,
    enable_profiling: serde_yaml::Value,
    feature_gates: serde_yaml::Value,
    iptables: serde_yaml::Value,
    ipvs: serde_yaml::Value,
    logging: serde_yaml::Value,
    oom_score_adj: serde_yaml::Value,
    port_range: serde_yaml::Value,
    show_hidden_metrics_for_version: serde_yaml::Value,
    #[serde(rename = "windowsRunAsService")]
    windows_run_as_service: serde_yaml::Value,
    winkernel: serde_yaml::Value,
    #[serde(rename = "udpIdleTimeout")]
    udp_idle_timeout: serde_yaml::Value,
}

/// How to reach the API server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    /// The kubeconfig.
    pub kubeconfig: String,
    accept_content_types: serde_yaml::Value,
    burst: serde_yaml::Value,
    content_type: serde_yaml::Value,
    qps: serde_yaml::Value,
}

/// Settings of nftables.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Nftables {
    /// Hide all sources.
    pub masquerade_all: bool,
    /// The bit of the packet mark that asks for masquerading.
    pub masquerade_bit: Option<u8>,
    min_sync_period: serde_yaml::Value,
    sync_period: serde_yaml::Value,
}

impl Configuration {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|cause| Error::Read { path: path.to_owned(), cause })?;
        let configuration: Self =
            serde_yaml::from_str(&text).map_err(|cause| Error::Parse { path: path.to_owned(), cause })?;
        configuration.check()?;
        Ok(configuration)
    }

    fn check(&self) -> Result<(), Error> {
        if self.kind != "KubeProxyConfiguration" || self.api_version != "kubeproxy.config.k8s.io/v1alpha1" {
            return Err(Error::Value(format!(
                "kind is {} {:?}; kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration is wanted",
                self.api_version, self.kind
            )));
        }
        match self.mode.as_str() {
            "" | "nftables" => Ok(()),
            other => Err(Error::Value(format!("mode {other:?} is not offered; use \"nftables\""))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(rest: &str) -> Result<Configuration, String> {
        let text = format!("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{rest}");
        let read: Configuration = serde_yaml::from_str(&text).map_err(|error| error.to_string())?;
        read.check().map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn upstream_fields_are_known_and_others_named() {
        assert_eq!(parse("clusterCIDR: 10.0.0.0/8\nipvs: {}\n").unwrap().cluster_cidr, "10.0.0.0/8");
        assert!(parse("clusterCidr: x\n").unwrap_err().contains("unknown field `clusterCidr`"));
        assert!(parse("mode: ipvs\n").unwrap_err().contains("nftables"));
    }
}
