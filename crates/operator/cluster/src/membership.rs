//! The membership of this machine in a cluster that another machine runs.

use serde::{Deserialize, Serialize};

use crate::ranges::Ranges;

/// A membership: what `ironclad join` learned and chose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Membership {
    /// URL of the API server.
    pub server: String,
    /// Address of the API server as it was typed, `HOST:PORT`; None if it came from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Addresses of this node's pods; None until the cluster has allocated them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Ranges>,
    /// True if the cluster has several API servers, to which a proxy on this machine connects.
    #[serde(default)]
    pub has_proxy: bool,
    /// True if the cluster's nodes enforce NetworkPolicies.
    pub enforces_policies: bool,
    /// Labels with which the node registers: `key=value`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Taints with which the node registers: `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
}
