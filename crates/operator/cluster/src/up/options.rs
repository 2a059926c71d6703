//! Options of `ironclad up`.

use crate::cni_plugin::{CniBackend, CniPlugin};
use crate::control_plane::SharedOptions;
use crate::node_dns::NodeDns;
use crate::ranges::Ranges;
use std::path::PathBuf;

/// Options of `start_cluster`. An absent option keeps the stored value, or the default.
#[derive(Debug, Clone, Default)]
pub struct UpOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Directory of the component binaries.
    pub bin_dir: Option<PathBuf>,
    /// Socket of an existing runtime.
    pub runtime_endpoint: Option<String>,
    /// Simulate containers.
    pub simulated: bool,
    /// Plugin of the pod network.
    pub cni: Option<CniPlugin>,
    /// Backend of `ironclad-cni`.
    pub cni_backend: Option<CniBackend>,
    /// A pod network that is not the cluster's own enforces NetworkPolicies.
    pub network_policies_enforced: Option<bool>,
    /// Number of nodes.
    pub nodes: Option<u8>,
    /// Name of the first node.
    pub node_name: Option<String>,
    /// Addresses of the first node, one of each family of the cluster; empty to choose them.
    pub node_addresses: Vec<std::net::IpAddr>,
    /// Addresses of pods.
    pub pod_cidr: Option<Ranges>,
    /// Addresses of Services.
    pub service_cidr: Option<Ranges>,
    /// The address of each node's DNS server; None keeps what it is.
    pub node_dns: Option<NodeDns>,
    /// Addresses for Services of type LoadBalancer; an empty text removes them.
    pub load_balancer_pool: Option<String>,
    /// File with issuers of tokens; an empty path removes them.
    pub authentication_config: Option<PathBuf>,
    /// Pick free ports instead of the default ones.
    pub pick_ports: bool,
    /// API server's port.
    pub api_port: Option<u16>,
    /// The store's port.
    pub store_port: Option<u16>,
    /// The store's port for peers.
    pub store_peer_port: Option<u16>,
    /// The kubelet's port.
    pub kubelet_port: Option<u16>,
    /// The port of the cluster DNS.
    pub dns_port: Option<u16>,
    /// Share the control plane with other machines; None keeps what it is.
    pub shared: Option<SharedOptions>,
    /// Verbosity of the components' logs.
    pub verbosity: Option<u8>,
}
