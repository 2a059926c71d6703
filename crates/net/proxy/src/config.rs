//! `KubeProxyConfiguration`. Fields that are not implemented are checked by [`UPSTREAM_FIELDS`];
//! unknown ones are rejected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use base_cli::{FalseMeans, judge_fields};
use base_duration::parse_unsigned;
use serde::Deserialize;
use serde_json::Value;

use crate::conntrack_settings::ConntrackConfiguration;
use crate::settings::CHECK_INTERVAL;
use crate::upstream::UPSTREAM_FIELDS;

/// An invalid configuration.
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
    /// The file is not YAML, or a field is unknown or has a value of another type.
    #[error("configuration {path} is not valid: {cause}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The reason.
        cause: serde_yaml::Error,
    },
    /// An unknown kind or an invalid value.
    #[error("configuration: {0}")]
    Value(String),
}

/// The content of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Configuration {
    /// `kubeproxy.config.k8s.io/v1alpha1`
    pub api_version: String,
    /// `KubeProxyConfiguration`
    pub kind: String,
    /// `nftables` (also if empty) or `iptables`.
    pub mode: String,
    /// Ranges of pods, separated by commas.
    #[serde(rename = "clusterCIDR")]
    pub cluster_cidr: String,
    /// Connection to the API server.
    pub client_connection: ClientConnection,
    /// `ip:port` of health checks.
    pub healthz_bind_address: String,
    /// `ip:port` of metrics.
    pub metrics_bind_address: String,
    /// Name of the node.
    pub hostname_override: String,
    /// `primary` or ranges.
    pub node_port_addresses: Option<Vec<String>>,
    /// Limits and timeouts of connection tracking.
    pub conntrack: ConntrackConfiguration,
    /// Settings of the nftables mode.
    pub nftables: Nftables,
    /// Settings of the iptables mode.
    pub iptables: Iptables,
    /// Detection of connections from pods: `ClusterCIDR`, `NodeCIDR`, `BridgeInterface`,
    /// `InterfaceNamePrefix`.
    pub detect_local_mode: String,
    /// Settings of the detection.
    pub detect_local: DetectLocalNames,
    /// Address of the node.
    pub bind_address: String,
    /// End if an address of health checks or metrics can't be bound.
    pub bind_address_hard_fail: bool,
    /// Score of the out-of-memory killer.
    pub oom_score_adj: Option<i32>,
}

/// Interfaces of pods.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DetectLocalNames {
    /// Bridge of pods.
    pub bridge_interface: String,
    /// Begin of the names of pods' interfaces.
    pub interface_name_prefix: String,
}

/// Settings of masquerading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Masquerade {
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: Option<u8>,
}

/// Settings of iptables.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Iptables {
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: Option<u8>,
    /// Node ports are open at 127.0.0.0/8.
    pub localhost_node_ports: Option<bool>,
    /// Interval of checks.
    pub sync_period: String,
    /// Least time between two syncs.
    pub min_sync_period: String,
}

/// Connection to the API server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientConnection {
    /// The kubeconfig.
    pub kubeconfig: String,
}

/// Settings of nftables.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Nftables {
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: Option<u8>,
    /// Interval of checks.
    pub sync_period: String,
    /// Least time between two syncs.
    pub min_sync_period: String,
}

/// Returns the interval of checks, and the least time between two syncs, from the two settings of
/// a mode.
///
/// # Errors
/// One is no duration, or the second exceeds the first.
pub(crate) fn parse_periods(
    (period, least): (&str, &str),
    default_least: Duration,
) -> anyhow::Result<(Duration, Duration)> {
    let parse = |text: &str| match text {
        "" => Ok(Duration::ZERO),
        text => parse_unsigned(text).with_context(|| format!("sync period {text:?}")),
    };
    // Zero counts as absent, as for all durations of this file.
    let or = |text: &str, default| {
        let parsed = parse(text)?;
        anyhow::Ok(Some(parsed).filter(|p| !p.is_zero()).unwrap_or(default))
    };
    let (period, least) = (or(period, CHECK_INTERVAL)?, or(least, default_least)?);
    anyhow::ensure!(
        least <= period,
        "minSyncPeriod {least:?} is longer than syncPeriod {period:?}"
    );
    Ok((period, least))
}

impl Configuration {
    /// Returns the settings of masquerading in a mode. Without a mode, upstream reads the section
    /// of iptables, and this proxy uses nftables: both count.
    pub(crate) fn masquerade(&self, mode: &str) -> Masquerade {
        let nftables = Masquerade {
            masquerade_all: self.nftables.masquerade_all,
            masquerade_bit: self.nftables.masquerade_bit,
        };
        let iptables = Masquerade {
            masquerade_all: self.iptables.masquerade_all,
            masquerade_bit: self.iptables.masquerade_bit,
        };
        match mode {
            "iptables" => iptables,
            "nftables" => nftables,
            _ => Masquerade {
                masquerade_all: nftables.masquerade_all || iptables.masquerade_all,
                masquerade_bit: nftables.masquerade_bit.or(iptables.masquerade_bit),
            },
        }
    }

    /// Loads a file. Logs a warning for each field without effect.
    ///
    /// # Errors
    /// The file can't be read, or uses a field that is not implemented.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|cause| Error::Read {
            path: path.to_owned(),
            cause,
        })?;
        let (configuration, warnings) = Self::parse(path, &text)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(configuration)
    }

    fn parse(path: &Path, text: &str) -> Result<(Self, Vec<String>), Error> {
        let invalid = |cause| Error::Parse {
            path: path.to_owned(),
            cause,
        };
        let mut tree: Value = serde_yaml::from_str(text).map_err(invalid)?;
        let judged = judge_fields(&mut tree, UPSTREAM_FIELDS, FalseMeans::Unset);
        // Read from text, not from the tree, because only that reader names the field of a value
        // that doesn't fit.
        let supported = serde_yaml::to_string(&tree).map_err(invalid)?;
        let configuration: Self = serde_yaml::from_str(&supported).map_err(invalid)?;
        configuration.check()?;
        match judged.refusals.is_empty() {
            true => Ok((configuration, judged.warnings)),
            false => Err(Error::Value(judged.refusals.join("; "))),
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.kind != "KubeProxyConfiguration"
            || self.api_version != "kubeproxy.config.k8s.io/v1alpha1"
        {
            return Err(Error::Value(format!(
                "kind is {} {:?}; kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration is wanted",
                self.api_version, self.kind
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(rest: &str) -> Result<(Configuration, Vec<String>), String> {
        let text = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n{rest}"
        );
        Configuration::parse(Path::new("proxy.yaml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_field_is_refused_by_name() {
        let error = parse("clusterCidr: x\n").unwrap_err();
        assert!(
            error.contains("unknown field `clusterCidr`") && error.contains("clusterCIDR"),
            "{error}"
        );
        assert!(parse("mode: [\n").unwrap_err().contains("line"));
    }

    #[test]
    fn file_of_kubeadm_is_read_without_warnings() {
        let text = "bindAddress: \"\"\nbindAddressHardFail: false\nclientConnection:\n  acceptContentTypes: \"\"\n  burst: 0\n  \
                    contentType: \"\"\n  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf\n  qps: 0\nclusterCIDR: 10.0.0.0/8\n\
                    configSyncPeriod: 0s\nconntrack:\n  maxPerCore: null\n  tcpBeLiberal: false\n  udpTimeout: 0s\n\
                    detectLocal:\n  bridgeInterface: \"\"\ndetectLocalMode: \"\"\nenableProfiling: false\nhealthzBindAddress: \"\"\n\
                    iptables:\n  localhostNodePorts: null\n  masqueradeAll: false\n  syncPeriod: 0s\nipvs:\n  excludeCIDRs: null\n  \
                    scheduler: \"\"\nlogging:\n  flushFrequency: 0\n  options:\n    json:\n      infoBufferSize: \"0\"\n  \
                    verbosity: 0\nmode: \"\"\nnftables:\n  masqueradeBit: null\nnodePortAddresses: null\noomScoreAdj: null\n\
                    portRange: \"\"\nwinkernel:\n  enableDSR: false\n";
        let (read, warnings) = parse(text).unwrap();
        assert_eq!(read.cluster_cidr, "10.0.0.0/8");
        assert_eq!(
            read.client_connection.kubeconfig,
            "/var/lib/kube-proxy/kubeconfig.conf"
        );
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn field_without_effect_is_named_and_a_refused_one_ends_the_read() {
        let (_, warnings) = parse("portRange: 1-2\n").unwrap();
        assert!(
            warnings[0].starts_with("portRange has no effect: "),
            "{warnings:?}"
        );
        assert!(parse("detectLocal: {clusterCIDRs: []}\n").is_err());
    }
}
