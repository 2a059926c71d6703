//! The command line and the configuration file. A flag overrides the file.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use base_telemetry::LogOptions;
use clap::Parser;
use net_policy::{AgentSettings, GuardedNetwork};

use crate::config::Configuration;
use crate::conntrack_settings::ConntrackConfiguration;
use crate::settings::{CHECK_INTERVAL, Settings};

/// Implements Services by nftables rules in the kernel.
#[derive(Debug, Parser)]
#[command(name = "kube-proxy", version, about)]
pub struct Args {
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
    /// Configuration file (KubeProxyConfiguration)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig with the API server and this process's credentials
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// URL of the API server instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Name of the node [default: the host's]
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Ranges of pods, separated by commas: connections from there keep their source address
    #[arg(long, value_name = "CIDR,...")]
    cluster_cidr: Option<String>,
    /// Mode: nftables; for iptables the same rules are installed by nftables
    #[arg(long, value_name = "MODE")]
    proxy_mode: Option<String>,
    /// Address of health checks, port 10256 if only an address is given; empty for none [default:
    /// 0.0.0.0:10256]
    #[arg(long, value_name = "IP[:PORT]")]
    healthz_bind_address: Option<String>,
    /// Address of metrics, port 10249 if only an address is given; empty for none [default:
    /// 127.0.0.1:10249]
    #[arg(long, value_name = "IP[:PORT]")]
    metrics_bind_address: Option<String>,
    /// Addresses of node ports: `primary`, or ranges
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Masquerade all connections
    #[arg(long)]
    masquerade_all: bool,
    /// Bit of the packet mark for masquerading [default: 14]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    nftables_masquerade_bit: Option<u8>,
    /// Connections tracked for each core of the machine; 0 leaves the kernel's limit [default:
    /// 32768]
    #[arg(long, value_name = "N")]
    conntrack_max_per_core: Option<u32>,
    /// Smallest number of tracked connections, however few cores there are [default: 131072]
    #[arg(long, value_name = "N")]
    conntrack_min: Option<u32>,
    /// Accept TCP packets outside the window, as Services with asymmetric routes need
    #[arg(long)]
    conntrack_tcp_be_liberal: bool,
    /// Time after which an idle TCP connection is forgotten; 0 leaves the kernel's [default: 24h]
    #[arg(long, value_name = "DURATION")]
    conntrack_tcp_timeout_established: Option<String>,
    /// Time after which a TCP connection in CLOSE_WAIT is forgotten; 0 leaves the kernel's
    /// [default: 1h]
    #[arg(long, value_name = "DURATION")]
    conntrack_tcp_timeout_close_wait: Option<String>,
    /// Time after which an UDP connection without an answer is forgotten; 0 leaves the kernel's
    /// [default: 0]
    #[arg(long, value_name = "DURATION")]
    conntrack_udp_timeout: Option<String>,
    /// Time after which an answered UDP connection is forgotten; 0 leaves the kernel's [default: 0]
    #[arg(long, value_name = "DURATION")]
    conntrack_udp_timeout_stream: Option<String>,
    /// Enforce NetworkPolicies on this node; needs the right to list and watch pods, namespaces and
    /// networkpolicies
    #[arg(long)]
    network_policies: bool,
    /// Ranges of this node's pods: addresses there that no known pod has are closed while the node
    /// has isolated pods
    #[arg(long, value_name = "CIDR,...", requires = "network_policies")]
    network_policy_pod_cidrs: Option<String>,
    /// Bridge of this node's pods: addresses there that the API does not have do not bypass policies
    #[arg(long, value_name = "DEVICE", requires = "network_policies", value_parser = parse_device)]
    network_policy_bridge: Option<String>,
    /// Remove all rules and exit
    #[arg(long)]
    pub cleanup: bool,
    /// Check the configuration and that rules can be installed, and exit
    #[arg(long)]
    pub init_only: bool,
}

impl Args {
    /// Returns the path of the kubeconfig, if given, and the settings. Logs fields without effect.
    ///
    /// # Errors
    /// The configuration file can't be read, or it or a flag has an invalid value.
    pub fn settings(self) -> anyhow::Result<(Option<PathBuf>, Settings)> {
        let file = read_file(self.config.as_deref())?;
        let text = |flag: Option<String>, file: String| flag.unwrap_or(file);
        check_mode(&text(self.proxy_mode, file.mode))?;
        let from_file = Some(file.client_connection.kubeconfig)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        let name = text(self.hostname_override, file.hostname_override);
        // A list in flags replaces that of the file as a whole.
        let node_port_addresses = match self.nodeport_addresses.is_empty() {
            true => file.node_port_addresses.unwrap_or_default(),
            false => self.nodeport_addresses,
        };
        let conntrack = ConntrackConfiguration {
            max_per_core: self.conntrack_max_per_core,
            min: self.conntrack_min,
            tcp_established_timeout: self.conntrack_tcp_timeout_established,
            tcp_close_wait_timeout: self.conntrack_tcp_timeout_close_wait,
            tcp_be_liberal: self.conntrack_tcp_be_liberal.then_some(true),
            udp_timeout: self.conntrack_udp_timeout,
            udp_stream_timeout: self.conntrack_udp_timeout_stream,
        };
        let node_name = choose_node_name(&name);
        let policies = match self.network_policies {
            false => None,
            true => Some(AgentSettings {
                node_name: node_name.clone(),
                network: GuardedNetwork {
                    ranges: parse_ranges(&self.network_policy_pod_cidrs.unwrap_or_default())?,
                    bridge: self.network_policy_bridge,
                },
                check_interval: CHECK_INTERVAL,
            }),
        };
        let settings = Settings {
            policies,
            conntrack: conntrack.or(file.conntrack).settings()?,
            node_name,
            pod_ranges: parse_ranges(&text(self.cluster_cidr, file.cluster_cidr))?,
            masquerade_all: self.masquerade_all || file.nftables.masquerade_all,
            masquerade_bit: self
                .nftables_masquerade_bit
                .or(file.nftables.masquerade_bit)
                .unwrap_or(14),
            sync_period: CHECK_INTERVAL,
            node_port_addresses,
            healthz: parse_address(
                self.healthz_bind_address,
                file.healthz_bind_address,
                ([0, 0, 0, 0], 10256),
            )?,
            metrics: parse_address(
                self.metrics_bind_address,
                file.metrics_bind_address,
                ([127, 0, 0, 1], 10249),
            )?,
        };
        Ok((self.kubeconfig.or(from_file), settings))
    }
}

fn read_file(path: Option<&Path>) -> anyhow::Result<Configuration> {
    let file = path.map(Configuration::read).transpose()?;
    Ok(file.unwrap_or_default())
}

fn choose_node_name(given: &str) -> String {
    if given.is_empty() {
        component::host_name().to_lowercase()
    } else {
        given.to_lowercase()
    }
}

fn parse_ranges<T: std::str::FromStr>(text: &str) -> anyhow::Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty())
        .map(|range| {
            range.parse().with_context(|| {
                format!("{range:?} is not a range of addresses such as 10.244.0.0/16")
            })
        })
        .collect()
}

/// Checks the name of a network device, which becomes part of rules.
fn parse_device(text: &str) -> Result<String, &'static str> {
    // IFNAMSIZ is 16 with the terminating zero.
    let is_name = (1..16).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match is_name {
        true => Ok(text.to_owned()),
        false => Err("not a name of a network device"),
    }
}

/// Checks the mode. k3s and older kubeadm files name iptables; nftables rules do the same for every
/// kind of Service.
fn check_mode(mode: &str) -> anyhow::Result<()> {
    match mode {
        "" | "nftables" => {}
        "iptables" => tracing::warn!(
            "mode iptables is served by nftables: rules are in the table kube-proxy of nft, and node ports are closed at loopback"
        ),
        other => anyhow::bail!("mode {other:?} is not offered; use \"nftables\""),
    }
    Ok(())
}

/// Parses an address with or without a port. An empty flag disables the endpoint.
fn parse_address(
    flag: Option<String>,
    file: String,
    default: ([u8; 4], u16),
) -> anyhow::Result<Option<SocketAddr>> {
    let text = match flag {
        Some(flag) if flag.is_empty() => return Ok(None),
        Some(flag) => flag,
        None if file.is_empty() => return Ok(Some(SocketAddr::from(default))),
        None => file,
    };
    let alone = text
        .parse::<IpAddr>()
        .map(|ip| SocketAddr::new(ip, default.1));
    let address = alone.or_else(|_| text.parse());
    address.map(Some).with_context(|| {
        format!(
            "{text:?} is not an address and port such as 127.0.0.1:{}",
            default.1
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::upstream::UPSTREAM_FLAGS;
    use base_cli::accept_upstream_flags;
    use clap::CommandFactory;
    use std::ffi::OsString;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    pub(crate) fn settings(words: &[&str]) -> anyhow::Result<Settings> {
        let words = std::iter::once("kube-proxy")
            .chain(words.iter().copied())
            .map(OsString::from);
        let accepted = accept_upstream_flags(words, UPSTREAM_FLAGS);
        anyhow::ensure!(accepted.refusals.is_empty(), "{:?}", accepted.refusals);
        Ok(base_cli::parse_arguments::<Args>(&accepted.arguments)?
            .settings()?
            .1)
    }

    #[test]
    fn flags_of_k3s_and_kops_start_the_proxy() {
        let k3s = [
            "--cluster-cidr=10.42.0.0/16",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-close-wait=0s",
            "--conntrack-tcp-timeout-established=0s",
            "--healthz-bind-address=127.0.0.1",
            "--hostname-override=n1",
            "--kubeconfig=/k",
            "--proxy-mode=iptables",
        ];
        let read = settings(&k3s).unwrap();
        assert_eq!(
            read.healthz,
            Some(SocketAddr::from(([127, 0, 0, 1], 10256)))
        );
        let kops = [
            "--bind-address=0.0.0.0",
            "--cluster-cidr=100.96.0.0/11",
            "--conntrack-max-per-core=131072",
            "--hostname-override=n1",
            "--kubeconfig=/k",
            "--master=https://api.internal.example",
            "--metrics-bind-address=0.0.0.0",
            "--oom-score-adj=-998",
            "--v=2",
        ];
        assert_eq!(
            settings(&kops).unwrap().metrics,
            Some(SocketAddr::from(([0, 0, 0, 0], 10249)))
        );
    }

    #[test]
    fn policies_are_enforced_only_on_request() {
        assert_eq!(settings(&[]).unwrap().policies, None);
        let read = settings(&[
            "--network-policies",
            "--hostname-override=N1",
            "--network-policy-pod-cidrs=10.244.0.0/24,fd00::/64",
            "--network-policy-bridge=cni0",
        ]);
        let policies = read.unwrap().policies.unwrap();
        assert_eq!(policies.node_name, "n1");
        assert_eq!(policies.network.ranges.len(), 2);
        for wrong in [
            &["--network-policy-bridge=cni0"][..],
            &["--network-policies", "--network-policy-bridge=a\" drop"],
            &["--network-policies", "--network-policy-pod-cidrs=10.0.0.0"],
        ] {
            assert!(settings(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn settings_that_would_change_what_is_exposed_are_refused() {
        for flag in [
            "--proxy-mode=ipvs",
            "--detect-local-mode=BridgeInterface",
            "--detect-local-mode=NodeCIDR",
            "--healthz-port=0",
            "--healthz-bind-address=here",
        ] {
            assert!(settings(&[flag]).is_err(), "{flag}");
        }
        assert!(settings(&["--detect-local-mode=ClusterCIDR"]).is_ok());
    }
}
