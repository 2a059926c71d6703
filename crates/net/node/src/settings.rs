//! The agent's settings.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use net_link::DeviceName;

/// Name of the file with the node's private key, in the directory of the plugin's records.
const PRIVATE_KEY: &str = "wireguard.key";

/// The way to pods of other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Routes to nodes on a link of this node, VXLAN to the others.
    Auto,
    /// Routes only; nodes elsewhere are an error.
    Direct,
    /// VXLAN only.
    Vxlan,
    /// WireGuard only: packets to pods of other nodes are encrypted, or dropped.
    Wireguard,
}

/// The agent's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Name of the node.
    pub node_name: String,
    /// Ranges of all pods of the cluster.
    pub cluster_ranges: Vec<IpNet>,
    /// Bridge of the pods.
    pub bridge: DeviceName,
    /// The way to pods of other nodes.
    pub backend: Backend,
    /// VXLAN device.
    pub vxlan_device: DeviceName,
    /// VXLAN's network identifier.
    pub vni: u32,
    /// VXLAN's UDP port.
    pub vxlan_port: u16,
    /// WireGuard device.
    pub wireguard_device: DeviceName,
    /// WireGuard's UDP port.
    pub wireguard_port: u16,
    /// Largest packet of pods in bytes; None is the underlying network's, less the headers of the
    /// tunnel.
    pub mtu: Option<u32>,
    /// Connections of pods to addresses outside the cluster get the node's address.
    pub masquerade: bool,
    /// Address of the API server, if it is known: no Node object changes how pods reach it.
    pub api_server: Option<IpAddr>,
    /// Directory of the runtime's CNI configurations.
    pub conf_dir: PathBuf,
    /// Directory of the plugin's records.
    pub data_dir: PathBuf,
}

impl NodeSettings {
    /// Returns the name of the rules' tables.
    pub(crate) fn table(&self) -> String {
        format!("pods-{}", self.bridge)
    }

    /// Returns the device through which packets go to nodes that are not on a link.
    pub(crate) fn tunnel_device(&self) -> &DeviceName {
        match self.backend {
            Backend::Wireguard => &self.wireguard_device,
            Backend::Auto | Backend::Direct | Backend::Vxlan => &self.vxlan_device,
        }
    }

    /// Returns the path of the node's private key.
    pub(crate) fn private_key_path(&self) -> PathBuf {
        self.data_dir.join(PRIVATE_KEY)
    }

    /// Returns the bytes that a packet to a tunnel needs for the headers around it.
    pub(crate) fn overhead(&self, local: IpAddr) -> u32 {
        match (self.backend, local) {
            (Backend::Direct, _) => 0,
            // WireGuard with its authentication, UDP, IP.
            (Backend::Wireguard, IpAddr::V4(_)) => 32 + 8 + 20,
            (Backend::Wireguard, IpAddr::V6(_)) => 32 + 8 + 40,
            // Ethernet within, VXLAN, UDP, IP.
            (_, IpAddr::V4(_)) => 14 + 8 + 8 + 20,
            (_, IpAddr::V6(_)) => 14 + 8 + 8 + 40,
        }
    }
}
