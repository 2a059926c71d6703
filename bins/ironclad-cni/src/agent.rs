//! The agent's command line.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use base_cli::CancellationToken;
use base_task::Tasks;
use base_telemetry::LogOptions;
use clap::{Parser, ValueEnum};
use client::{Client, Config};
use ipnet::IpNet;
use net_link::DeviceName;
use net_node::{Backend, NodeSettings};

/// Name of the plugin in the runtime's directory, by which configurations name it.
const PLUGIN: &str = "ironclad-cni";

/// Keeps the pod network of a node: routes or tunnels to the pods of other nodes, rules, and the
/// configuration of the container runtime. With CNI_COMMAND in its environment it is the runtime's
/// plugin instead
#[derive(Debug, Parser)]
#[command(name = "ironclad-cni", version, about)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    /// Kubeconfig of the API server [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig with which the node's WireGuard key is published in its Node: the kubelet's,
    /// whose identity may write no other Node [default: that of --kubeconfig]
    #[arg(long, value_name = "FILE")]
    node_kubeconfig: Option<PathBuf>,
    /// Name of the node [default: the host's]
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Ranges of all pods of the cluster, separated by commas
    #[arg(long, value_name = "CIDR,...", required = true, value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// The way to pods of other nodes
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    backend: BackendName,
    /// Bridge of the node's pods
    #[arg(long, value_name = "DEVICE", default_value = net_cni::DEFAULT_BRIDGE, value_parser = parse_device)]
    bridge: DeviceName,
    /// VXLAN device
    #[arg(long, value_name = "DEVICE", default_value = "vxlan-pods", value_parser = parse_device)]
    vxlan_device: DeviceName,
    /// Network identifier of VXLAN; the same on all nodes
    #[arg(long, value_name = "ID", default_value = "1", value_parser = clap::value_parser!(u32).range(1..1 << 24))]
    vxlan_vni: u32,
    /// UDP port of VXLAN; the same on all nodes
    #[arg(long, value_name = "PORT", default_value = "8472", value_parser = clap::value_parser!(u16).range(1..))]
    vxlan_port: u16,
    /// WireGuard device
    #[arg(long, value_name = "DEVICE", default_value = "wireguard-pods", value_parser = parse_device)]
    wireguard_device: DeviceName,
    /// UDP port of WireGuard; the same on all nodes
    #[arg(long, value_name = "PORT", default_value = "51820", value_parser = clap::value_parser!(u16).range(1..))]
    wireguard_port: u16,
    /// Largest packet of pods in bytes [default: that of the node's device, less the tunnel's
    /// headers]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    mtu: Option<u32>,
    /// Give connections of pods to addresses outside the cluster the node's address
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    masquerade: bool,
    /// Directory of the container runtime's CNI configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Directory of the plugin's records
    #[arg(long, value_name = "DIR", default_value = net_cni::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Directory of the container runtime's plugins, into which this program is copied at the start
    /// [default: it is not copied]
    #[arg(long, value_name = "DIR")]
    install_plugin: Option<PathBuf>,
    /// Remove what the agent and the plugin made on this node, and end
    #[arg(long)]
    cleanup: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BackendName {
    /// Routes to nodes on a link of this node, VXLAN to the others
    Auto,
    /// Routes only
    Direct,
    /// VXLAN only
    Vxlan,
    /// WireGuard only: packets to pods of other nodes are encrypted
    Wireguard,
}

fn parse_device(text: &str) -> Result<DeviceName, &'static str> {
    DeviceName::parse(text).ok_or("is not a name of a device")
}

impl Args {
    fn settings(&self) -> anyhow::Result<NodeSettings> {
        for (name, dir) in [
            ("cni-conf-dir", &self.cni_conf_dir),
            ("data-dir", &self.data_dir),
        ] {
            ensure!(
                dir.is_absolute(),
                "--{name} {} is no absolute path",
                dir.display()
            );
        }
        let devices = [&self.bridge, &self.vxlan_device, &self.wireguard_device];
        ensure!(
            BTreeSet::from(devices).len() == devices.len(),
            "two of --bridge, --vxlan-device and --wireguard-device are one device; give them different names"
        );
        ensure!(
            self.vxlan_port != self.wireguard_port,
            "--vxlan-port and --wireguard-port are one port; give them different numbers"
        );
        Ok(NodeSettings {
            node_name: read_node_name(self.hostname_override.as_deref())?,
            cluster_ranges: self.cluster_cidr.iter().map(IpNet::trunc).collect(),
            bridge: self.bridge.clone(),
            backend: match self.backend {
                BackendName::Auto => Backend::Auto,
                BackendName::Direct => Backend::Direct,
                BackendName::Vxlan => Backend::Vxlan,
                BackendName::Wireguard => Backend::Wireguard,
            },
            vxlan_device: self.vxlan_device.clone(),
            vni: self.vxlan_vni,
            vxlan_port: self.vxlan_port,
            wireguard_device: self.wireguard_device.clone(),
            wireguard_port: self.wireguard_port,
            mtu: self.mtu,
            masquerade: self.masquerade,
            api_server: None,
            conf_dir: self.cni_conf_dir.clone(),
            data_dir: self.data_dir.clone(),
        })
    }
}

/// Returns the name of the node, as the kubelet chooses it.
fn read_node_name(text: Option<&str>) -> anyhow::Result<String> {
    let name = match text {
        Some(name) => name.to_owned(),
        None => nix::unistd::gethostname()
            .context("the host's name can't be read")?
            .to_string_lossy()
            .into_owned(),
    };
    let name = name.trim().to_lowercase();
    ensure!(
        !name.is_empty(),
        "the node has no name; set --hostname-override"
    );
    Ok(name)
}

pub(crate) async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    let mut settings = args.settings()?;
    if args.cleanup {
        let removed = net_node::remove_network(&settings).await;
        return removed.context("the pod network can't be removed");
    }
    if let Some(dir) = &args.install_plugin {
        base_task::blocking(|| install_plugin(dir))
            .with_context(|| format!("the plugin can't be copied to {}", dir.display()))?;
    }
    let config = Config::from_kubeconfig_or_in_cluster(args.kubeconfig.as_deref())?;
    settings.api_server = find_address(&config.server);
    let publisher = match &args.node_kubeconfig {
        Some(path) => Config::from_kubeconfig(path)?,
        None => config.clone(),
    };
    let client = Client::new(config.user_agent("ironclad-cni"));
    let publisher = Client::new(publisher.user_agent("ironclad-cni"));
    let tasks = Tasks::new(shutdown);
    let ran = net_node::run_agent(client, publisher, settings, tasks.clone()).await;
    let finished = tasks.finish(Duration::from_secs(5)).await;
    ran?;
    Ok(finished?)
}

/// Returns the address in a URL, if its host is none of DNS.
fn find_address(url: &str) -> Option<IpAddr> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split('/').next()?;
    let with_port = host.parse::<SocketAddr>().map(|address| address.ip());
    let alone = || host.trim_matches(['[', ']']).parse();
    with_port.or_else(|_| alone()).ok()
}

/// Copies this program into a directory. Pods that start meanwhile run the old or the new one.
fn install_plugin(dir: &Path) -> io::Result<()> {
    let program = fs::read("/proc/self/exe")?;
    let path = dir.join(PLUGIN);
    if fs::read(&path).is_ok_and(|present| present == program) {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    let temporary = dir.join(format!(".{PLUGIN}.new"));
    fs::write(&temporary, program)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755))?;
    fs::File::open(&temporary)?.sync_all()?;
    fs::rename(&temporary, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Option<NodeSettings> {
        let words = [&["x", "--hostname-override=N1"], options].concat();
        Args::try_parse_from(words).ok()?.settings().ok()
    }

    #[test]
    fn ranges_are_required_and_values_checked() {
        let settings = parse(&["--cluster-cidr=10.244.0.0/16,fd00::/48"]);
        let found = settings.map(|settings| (settings.node_name, settings.cluster_ranges.len()));
        assert_eq!(found, Some(("n1".to_owned(), 2)));
        assert_eq!(parse(&[]), None);
        for wrong in [
            "--cluster-cidr=10.244.0.0",
            "--bridge=a b",
            "--bridge=vxlan-pods",
            "--bridge=wireguard-pods",
            "--vxlan-device=wireguard-pods",
            "--vxlan-vni=0",
            "--vxlan-vni=16777216",
            "--vxlan-port=0",
            "--mtu=500",
            "--backend=ipsec",
            "--wireguard-port=0",
            "--wireguard-port=8472",
            "--cni-conf-dir=net.d",
        ] {
            assert_eq!(
                parse(&["--cluster-cidr=10.244.0.0/16", wrong]),
                None,
                "{wrong}"
            );
        }
    }

    #[test]
    fn address_of_the_api_server_is_read() {
        for (url, expect) in [
            ("https://192.0.2.1:6443", Some("192.0.2.1")),
            ("https://192.0.2.1/path", Some("192.0.2.1")),
            ("https://[2001:db8::1]:6443", Some("2001:db8::1")),
            ("https://[2001:db8::1]", Some("2001:db8::1")),
            ("https://api.example:6443", None),
            ("192.0.2.1", None),
        ] {
            let expect = expect.and_then(|text| text.parse().ok());
            assert_eq!(find_address(url), expect, "{url}");
        }
    }

    #[test]
    fn program_is_copied_once() {
        let dir = tempfile::tempdir().ok();
        let path = dir.as_ref().map(|dir| dir.path().join("bin"));
        let path = path.unwrap_or_default();
        assert!(install_plugin(&path).is_ok());
        let made = |path: &Path| {
            fs::metadata(path.join(PLUGIN))
                .and_then(|data| data.modified())
                .ok()
        };
        let first = made(&path);
        assert!(first.is_some());
        assert!(install_plugin(&path).is_ok());
        assert_eq!(made(&path), first);
    }
}
