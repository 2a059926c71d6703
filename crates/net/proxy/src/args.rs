//! The command line and the configuration file. A flag overrides the file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;
use api_address_pool::AddressPool;
use base_telemetry::LogOptions;
use clap::Parser;
use net_announce::AgentSettings as AnnounceSettings;
use net_policy::{AgentSettings, GuardedNetwork};

use crate::config::Configuration;
use crate::conntrack_settings::ConntrackConfiguration;
use crate::detect_local::{DetectLocalOptions, check_device, parse_ranges};
use crate::local::NodePortAddresses;
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
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    masquerade_all: Option<bool>,
    /// Bit of the packet mark for masquerading [default: 14]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    nftables_masquerade_bit: Option<u8>,
    /// The same in the mode iptables
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    iptables_masquerade_bit: Option<u8>,
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
        check_mode(&mode)?;
        let masquerade = file.masquerade(&mode);
        let flag_bit = self.iptables_masquerade_bit.filter(|_| mode != "nftables");
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
        let (sync_period, min_sync_period) = file.nftables.periods()?;
        Ok(Settings {
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
            masquerade_bit: check_bit(
                self.nftables_masquerade_bit
                    .or(flag_bit)
                    .or(masquerade.masquerade_bit),
            )?,
            sync_period,
            min_sync_period,
            node_port_addresses: NodePortAddresses::parse(node_ports)?,
            healthz: parse_address(healthz, &file.healthz_bind_address, (every, 10256))?,
            metrics: parse_address(metrics, &file.metrics_bind_address, (loopback, 10249))?,
        })
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
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::detect_local::DetectLocal;
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
    fn addresses_are_announced_only_on_request() {
        assert_eq!(settings(&[]).unwrap().announcements, None);
        let read = settings(&[
            "--load-balancer-pool=192.0.2.100-192.0.2.110,2001:db8::/120",
            "--load-balancer-interface=eth1",
            "--hostname-override=N1",
        ]);
        let read = read.unwrap().announcements.unwrap();
        assert_eq!(read.node_name, "n1");
        assert_eq!(read.interface.as_deref(), Some("eth1"));
        assert!(read.pool.contains("192.0.2.105".parse().unwrap()));
        for wrong in [
            &["--load-balancer-pool="][..],
            &["--load-balancer-pool=192.0.2.300"],
            &["--load-balancer-interface=eth1"],
            &[
                "--load-balancer-pool=192.0.2.1",
                "--load-balancer-interface=a/b",
            ],
        ] {
            assert!(settings(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn settings_that_would_change_what_is_exposed_are_refused() {
        for flag in [
            "--proxy-mode=ipvs",
            "--detect-local-mode=BridgeInterface",
            "--detect-local-mode=Pods",
            "--bind-address=here",
            "--oom-score-adj=-1001",
            "--nodeport-addresses=primary,10.0.0.0/8",
            "--healthz-port=0",
            "--healthz-bind-address=here",
        ] {
            assert!(settings(&[flag]).is_err(), "{flag}");
        }
        assert!(settings(&["--detect-local-mode=ClusterCIDR"]).is_ok());
    }

    #[test]
    fn flags_set_the_detection_of_pods_and_the_process() {
        let read = settings(&[
            "--detect-local-mode=BridgeInterface",
            "--pod-bridge-interface=cni0",
            "--bind-address=192.0.2.1",
            "--bind-address-hard-fail=true",
            "--oom-score-adj=-5",
        ]);
        let read = read.unwrap();
        assert_eq!(read.detect_local, DetectLocal::Interface("cni0".into()));
        assert_eq!(read.bind_address, Some(IpAddr::from([192, 0, 2, 1])));
        assert!(read.bind_hard_fail);
        assert_eq!(read.oom_score_adj, -5);
        assert_eq!(settings(&[]).unwrap().oom_score_adj, -999);
    }

    /// Go's flags take a value only after `=`.
    #[test]
    fn flags_of_two_values_need_none() {
        for (flag, expect) in [
            ("--masquerade-all", true),
            ("--masquerade-all=true", true),
            ("--masquerade-all=false", false),
        ] {
            assert_eq!(settings(&[flag]).unwrap().masquerade_all, expect, "{flag}");
        }
        let words = ["kube-proxy", "--cleanup=false", "--init-only"];
        let args = Args::try_parse_from(words).unwrap();
        assert!(!args.cleanup && args.init_only);
    }

    fn of_file(text: &str) -> anyhow::Result<Settings> {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), format!("{head}{text}"))?;
        settings(&[&format!("--config={}", file.path().display())])
    }

    /// In the mode iptables, and without a mode as in upstream, the section iptables counts.
    #[test]
    fn masquerading_is_read_from_the_section_of_the_mode() {
        let both =
            "iptables: {masqueradeAll: true, masqueradeBit: 15}\nnftables: {masqueradeBit: 16}";
        for (mode, expect) in [
            ("nftables", (false, 16)),
            ("iptables", (true, 15)),
            ("\"\"", (true, 16)),
        ] {
            let read = of_file(&format!("mode: {mode}\n{both}\n")).unwrap();
            assert_eq!((read.masquerade_all, read.masquerade_bit), expect, "{mode}");
        }
        assert!(of_file("nftables: {masqueradeBit: 32}\n").is_err());
    }

    #[test]
    fn file_sets_periods_and_addresses() {
        let read = of_file("nftables: {syncPeriod: 1m, minSyncPeriod: 2s}\nbindAddress: fd00::1\n");
        let read = read.unwrap();
        let seconds = (read.sync_period.as_secs(), read.min_sync_period.as_secs());
        assert_eq!(seconds, (60, 2));
        assert_eq!(read.healthz.unwrap().to_string(), "[::]:10256");
        assert_eq!(read.metrics.unwrap().to_string(), "[::1]:10249");
        let read = of_file("nftables: {syncPeriod: 0s}\n").unwrap();
        let seconds = (read.sync_period.as_secs(), read.min_sync_period.as_secs());
        assert_eq!(seconds, (30, 0));
        for wrong in [
            "nftables: {syncPeriod: soon}",
            "nftables: {syncPeriod: 1s, minSyncPeriod: 2s}",
            "oomScoreAdj: 1001",
            "detectLocalMode: BridgeInterface",
            "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
            "nodePortAddresses: [10.0.0.1]",
        ] {
            assert!(of_file(wrong).is_err(), "{wrong}");
        }
    }
}
