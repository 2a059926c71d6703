//! The command line and the configuration file. A flag overrides the file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use api_address_pool::AddressPool;
use base_telemetry::LogOptions;
use clap::Parser;
use net_announce::AgentSettings as AnnounceSettings;
use net_policy::{AgentSettings, GuardedNetwork};

use crate::config::{Configuration, parse_periods};
use crate::conntrack_settings::ConntrackConfiguration;
use crate::detect_local::{DetectLocalOptions, check_device, parse_ranges};
use crate::local::NodePortAddresses;
use crate::settings::{CHECK_INTERVAL, Mode, Settings};

/// Implements Services by rules of nftables or iptables in the kernel.
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
    /// Detection of connections from pods of this node: ClusterCIDR, NodeCIDR, BridgeInterface or
    /// InterfaceNamePrefix [default: ClusterCIDR]
    #[arg(long, value_name = "MODE")]
    detect_local_mode: Option<String>,
    /// Bridge of pods, for the mode BridgeInterface
    #[arg(long, value_name = "DEVICE")]
    pod_bridge_interface: Option<String>,
    /// Prefix of the names of pods' interfaces, for the mode InterfaceNamePrefix
    #[arg(long, value_name = "PREFIX")]
    pod_interface_name_prefix: Option<String>,
    /// Address of the node instead of that in its Node object; nothing is bound to it
    #[arg(long, value_name = "IP")]
    bind_address: Option<String>,
    /// End if an address of health checks or metrics can't be bound, instead of trying again
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    bind_address_hard_fail: Option<bool>,
    /// Score of the kernel's out-of-memory killer for this process [default: -999]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-1000..=1000))]
    oom_score_adj: Option<i32>,
    /// Mode: nftables or iptables [default: nftables]
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
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    masquerade_all: Option<bool>,
    /// Bit of the packet mark for masquerading [default: 14]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    nftables_masquerade_bit: Option<u8>,
    /// The same in the mode iptables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    iptables_masquerade_bit: Option<u8>,
    /// Interval of checks of the rules in the mode iptables [default: 30s]
    #[arg(long, value_name = "DURATION")]
    iptables_sync_period: Option<String>,
    /// Least time between two syncs in the mode iptables [default: 1s]
    #[arg(long, value_name = "DURATION")]
    iptables_min_sync_period: Option<String>,
    /// Open node ports at 127.0.0.0/8 in the mode iptables, which sets route_localnet [default:
    /// true]
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    iptables_localhost_nodeports: Option<bool>,
    /// Connections tracked for each core of the machine; 0 leaves the kernel's limit [default:
    /// 32768]
    #[arg(long, value_name = "N")]
    conntrack_max_per_core: Option<u32>,
    /// Smallest number of tracked connections, however few cores there are [default: 131072]
    #[arg(long, value_name = "N")]
    conntrack_min: Option<u32>,
    /// Accept TCP packets outside the window, as Services with asymmetric routes need
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    conntrack_tcp_be_liberal: Option<bool>,
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
    /// Bridge of this node's pods: addresses there that the API does not have do not bypass
    /// policies
    #[arg(long, value_name = "DEVICE", requires = "network_policies", value_parser = parse_device)]
    network_policy_bridge: Option<String>,
    /// Announce addresses of Services of type LoadBalancer by ARP and neighbour discovery: CIDRs,
    /// FIRST-LAST or addresses, the same as those of kube-controller-manager; needs CAP_NET_RAW
    #[arg(long, value_name = "RANGE,...")]
    load_balancer_pool: Option<AddressPool>,
    /// Interface for these announcements [default: those with a network of the pool]
    #[arg(long, value_name = "DEVICE", requires = "load_balancer_pool", value_parser = parse_device)]
    load_balancer_interface: Option<String>,
    /// Remove all rules and exit
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, default_value_t = false, action = clap::ArgAction::Set)]
    pub cleanup: bool,
    /// Check the configuration and that rules can be installed, and exit
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, default_value_t = false, action = clap::ArgAction::Set)]
    pub init_only: bool,
}

impl Args {
    /// Returns the path of the kubeconfig, if given, and the settings. Logs fields without effect.
    ///
    /// # Errors
    /// The configuration file can't be read, or it or a flag has an invalid value.
    pub fn settings(self) -> anyhow::Result<(Option<PathBuf>, Settings)> {
        let file = read_file(self.config.as_deref())?;
        let kubeconfig = self.kubeconfig.clone();
        let from_file = Some(file.client_connection.kubeconfig.clone())
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        Ok((kubeconfig.or(from_file), self.resolve(file)?))
    }

    /// Returns the settings of the flags and the file.
    fn resolve(self, file: Configuration) -> anyhow::Result<Settings> {
        let text = |flag: &Option<String>, file: &str| flag.clone().unwrap_or(file.to_owned());
        let mode = text(&self.proxy_mode, &file.mode);
        let back_end = self.parse_mode(&mode, &file)?;
        let is_iptables = back_end != Mode::Nftables;
        let masquerade = file.masquerade(&mode);
        let flag_bit = match is_iptables {
            true => self.iptables_masquerade_bit,
            // Without a mode, upstream would use iptables.
            false => self
                .nftables_masquerade_bit
                .or(self.iptables_masquerade_bit.filter(|_| mode.is_empty())),
        };
        let node_name = choose_node_name(&text(&self.hostname_override, &file.hostname_override));
        let detect_local = DetectLocalOptions {
            mode: text(&self.detect_local_mode, &file.detect_local_mode),
            cluster_cidr: text(&self.cluster_cidr, &file.cluster_cidr),
            bridge: text(
                &self.pod_bridge_interface,
                &file.detect_local.bridge_interface,
            ),
            prefix: text(
                &self.pod_interface_name_prefix,
                &file.detect_local.interface_name_prefix,
            ),
        };
        // A list in flags replaces that of the file as a whole.
        let node_ports = match self.nodeport_addresses.is_empty() {
            true => file.node_port_addresses.as_deref().unwrap_or_default(),
            false => &self.nodeport_addresses,
        };
        let (healthz, metrics) = (&self.healthz_bind_address, &self.metrics_bind_address);
        let (every, loopback) = default_addresses(&file.bind_address);
        let (sync_period, min_sync_period) = self.periods(&back_end, &file)?;
        Ok(Settings {
            node_port_addresses: NodePortAddresses::parse(node_ports, is_iptables)?,
            mode: back_end,
            policies: self.policies(&node_name)?,
            announcements: self.announcements(&node_name),
            conntrack: self.conntrack().or(file.conntrack).settings()?,
            node_name,
            detect_local: detect_local.parse()?,
            bind_address: parse_bind_address(&text(&self.bind_address, &file.bind_address))?,
            bind_hard_fail: self
                .bind_address_hard_fail
                .unwrap_or(file.bind_address_hard_fail),
            oom_score_adj: check_oom_score(self.oom_score_adj.or(file.oom_score_adj))?,
            masquerade_all: self.masquerade_all.unwrap_or(masquerade.masquerade_all),
            masquerade_bit: check_bit(flag_bit.or(masquerade.masquerade_bit))?,
            sync_period,
            min_sync_period,
            healthz: parse_address(healthz, &file.healthz_bind_address, (every, 10256))?,
            metrics: parse_address(metrics, &file.metrics_bind_address, (loopback, 10249))?,
        })
    }

    fn parse_mode(&self, mode: &str, file: &Configuration) -> anyhow::Result<Mode> {
        let localhost = self
            .iptables_localhost_nodeports
            .or(file.iptables.localhost_node_ports);
        match mode {
            "" | "nftables" => Ok(Mode::Nftables),
            "iptables" => Ok(Mode::Iptables {
                localhost_node_ports: localhost.unwrap_or(true),
            }),
            other => {
                anyhow::bail!("mode {other:?} is not offered; use \"nftables\" or \"iptables\"")
            }
        }
    }

    /// Returns the interval of checks, and the least time between two syncs.
    fn periods(&self, mode: &Mode, file: &Configuration) -> anyhow::Result<(Duration, Duration)> {
        let (nftables, iptables) = (&file.nftables, &file.iptables);
        if *mode == Mode::Nftables {
            let periods = (nftables.sync_period.as_str(), &*nftables.min_sync_period);
            return parse_periods(periods, Duration::ZERO).context("nftables");
        }
        let period = self.iptables_sync_period.as_deref();
        let least = self.iptables_min_sync_period.as_deref();
        let periods = (
            period.unwrap_or(&iptables.sync_period),
            least.unwrap_or(&iptables.min_sync_period),
        );
        // A transaction of iptables takes long with many rules.
        parse_periods(periods, Duration::from_secs(1)).context("iptables")
    }

    fn conntrack(&self) -> ConntrackConfiguration {
        ConntrackConfiguration {
            max_per_core: self.conntrack_max_per_core,
            min: self.conntrack_min,
            tcp_established_timeout: self.conntrack_tcp_timeout_established.clone(),
            tcp_close_wait_timeout: self.conntrack_tcp_timeout_close_wait.clone(),
            tcp_be_liberal: self.conntrack_tcp_be_liberal,
            udp_timeout: self.conntrack_udp_timeout.clone(),
            udp_stream_timeout: self.conntrack_udp_timeout_stream.clone(),
        }
    }

    fn announcements(&self, node_name: &str) -> Option<AnnounceSettings> {
        Some(AnnounceSettings {
            node_name: node_name.to_owned(),
            pool: self.load_balancer_pool.clone()?,
            interface: self.load_balancer_interface.clone(),
        })
    }

    fn policies(&self, node_name: &str) -> anyhow::Result<Option<AgentSettings>> {
        if !self.network_policies {
            return Ok(None);
        }
        let ranges = self.network_policy_pod_cidrs.as_deref().unwrap_or_default();
        Ok(Some(AgentSettings {
            node_name: node_name.to_owned(),
            network: GuardedNetwork {
                ranges: parse_ranges(ranges)?,
                bridge: self.network_policy_bridge.clone(),
            },
            check_interval: CHECK_INTERVAL,
        }))
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

fn parse_device(text: &str) -> anyhow::Result<String> {
    check_device(text)?;
    Ok(text.to_owned())
}

fn parse_bind_address(text: &str) -> anyhow::Result<Option<IpAddr>> {
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = text.parse().map(Some);
    parsed.with_context(|| format!("bindAddress {text:?} is not an IP address"))
}

/// Returns the default addresses of health checks and metrics, which are of the family of
/// `bindAddress`.
fn default_addresses(bind_address: &str) -> (IpAddr, IpAddr) {
    match bind_address.contains(':') {
        true => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into()),
    }
}

fn check_oom_score(score: Option<i32>) -> anyhow::Result<i32> {
    // Upstream's default: the last but one to be killed.
    let score = score.unwrap_or(-999);
    anyhow::ensure!(
        (-1000..=1000).contains(&score),
        "oomScoreAdj {score} is not in the range of -1000 to 1000"
    );
    Ok(score)
}

fn check_bit(bit: Option<u8>) -> anyhow::Result<u8> {
    let bit = bit.unwrap_or(14);
    anyhow::ensure!(
        bit < 32,
        "masqueradeBit {bit} is not in the range of 0 to 31"
    );
    Ok(bit)
}

/// Parses an address with or without a port. An empty flag disables the endpoint.
fn parse_address(
    flag: &Option<String>,
    file: &str,
    (address, port): (IpAddr, u16),
) -> anyhow::Result<Option<SocketAddr>> {
    let default = SocketAddr::new(address, port);
    let text = match flag.as_deref() {
        Some("") => return Ok(None),
        Some(flag) => flag,
        None if file.is_empty() => return Ok(Some(default)),
        None => file,
    };
    let alone = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    let parsed = alone.or_else(|_| text.parse()).map(Some);
    parsed.with_context(|| format!("{text:?} is not an address and port such as 127.0.0.1:{port}"))
}

#[cfg(test)]
#[path = "args_tests.rs"]
pub(crate) mod tests;
