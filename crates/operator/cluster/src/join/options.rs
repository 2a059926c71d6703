//! Options of `ironclad join`.

use std::net::IpAddr;
use std::path::PathBuf;

use api_bootstrap::BootstrapToken;
use operator_discovery::{Endpoint, KeyPin, Trust};
use operator_pki::CertificateKey;

use crate::cni_plugin::{CniBackend, CniPlugin};

/// The source from which a joining machine learns the address and the CA of the cluster.
#[derive(Debug, Clone)]
pub enum DiscoverySource {
    /// The cluster itself; the token's signature and `trust` verify it.
    Token {
        /// Address of an API server.
        endpoint: Endpoint,
        /// The means to verify the CA.
        trust: Trust,
    },
    /// A kubeconfig that was copied from the cluster.
    File {
        /// The file.
        path: PathBuf,
        /// Keys of which a certificate of its CA must have one; none are no condition.
        pins: Vec<KeyPin>,
    },
}

/// Options of discovery: the first contact with a cluster.
#[derive(Debug, Clone)]
pub struct DiscoveryOptions {
    /// The source of the address and the CA.
    pub source: DiscoverySource,
    /// The token with which the machine requests its certificate.
    pub token: BootstrapToken,
}

/// The source of the keys of a machine that joins the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlPlaneKey {
    /// With the key of the Secret `kubeadm-certs`.
    Key(CertificateKey),
    /// A machine that has the keys already continues or is repaired.
    Present,
}

/// Options of `join_cluster`. An absent option keeps the stored value, or the default.
#[derive(Debug, Clone, Default)]
pub struct JoinOptions {
    /// Data directory.
    pub data_dir: PathBuf,
    /// Directory of the component binaries.
    pub bin_dir: Option<PathBuf>,
    /// The first contact; None repairs a machine that has joined.
    pub discovery: Option<DiscoveryOptions>,
    /// Join the control plane; None for a worker, or for a machine that has joined.
    pub control_plane: Option<ControlPlaneKey>,
    /// Socket of an existing runtime.
    pub runtime_endpoint: Option<String>,
    /// Simulate containers.
    pub simulated: bool,
    /// Plugin of the pod network.
    pub cni: Option<CniPlugin>,
    /// Backend of `ironclad-cni`.
    pub cni_backend: Option<CniBackend>,
    /// Name of the node.
    pub node_name: Option<String>,
    /// Addresses of the node, one of each family of the cluster; empty to choose them.
    pub node_addresses: Vec<IpAddr>,
    /// Labels of the node: `key=value`.
    pub labels: Vec<String>,
    /// Taints of the node: `key=value:effect`.
    pub taints: Vec<String>,
    /// Pick free ports instead of the default ones.
    pub pick_ports: bool,
    /// The kubelet's port.
    pub kubelet_port: Option<u16>,
    /// Verbosity of the components' logs.
    pub verbosity: Option<u8>,
}
