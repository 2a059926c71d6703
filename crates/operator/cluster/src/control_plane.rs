//! A control plane that several machines share, as this machine knows it.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The label of nodes with a control plane: that of kubeadm.
pub(crate) const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// A shared control plane: what `ironclad init` and `join --control-plane` chose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// Address of a load balancer or virtual IP before the API servers, `HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Additional names and addresses in the API server's certificate.
    #[serde(default)]
    pub extra_sans: Vec<String>,
    /// Addresses of this node's pods, which the cluster has allocated; None for the first range, and before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Ipv4Net>,
    /// The membership of a machine that joined the control plane; None for the machine of `ironclad init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinedControlPlane>,
}

/// A machine that joined the control plane of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinedControlPlane {
    /// URL of the API server through which it joined.
    pub server: String,
    /// The members of the store at the time of the join, `NAME=URL`, comma-separated; empty until the member of
    /// this machine was added.
    #[serde(default)]
    pub initial_cluster: String,
    /// URLs for clients of the members at the time of the join.
    #[serde(default)]
    pub client_urls: Vec<String>,
    /// True once the member on this machine votes.
    pub is_voter: bool,
    /// Labels with which the node is created: `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Taints with which the node is created: `key=value:effect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
}

impl JoinedControlPlane {
    /// Returns whether the store may start.
    #[must_use]
    pub fn is_added(&self) -> bool {
        !self.initial_cluster.is_empty()
    }
}
