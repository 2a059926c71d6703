//! The ports of the components.

use serde::{Deserialize, Serialize};

/// The ports of the components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    /// HTTPS of the API server.
    pub api: u16,
    /// gRPC of the store for clients.
    pub store: u16,
    /// Peer port of the store's members.
    pub store_peer: u16,
    /// The kubelet's server.
    pub kubelet: u16,
    /// The kubelet's health.
    pub kubelet_health: u16,
    /// The controller manager.
    pub controller_manager: u16,
    /// The scheduler.
    pub scheduler: u16,
    /// kube-proxy's metrics.
    pub proxy_metrics: u16,
    /// kube-proxy's health.
    pub proxy_health: u16,
    /// Cluster DNS, UDP and TCP.
    pub dns: u16,
    /// Health and metrics of the cluster DNS.
    pub dns_health: u16,
    /// The proxy to the API servers of a shared control plane.
    #[serde(default = "default_proxy_port")]
    pub api_proxy: u16,
    /// Health and metrics of the DNS server of each node.
    #[serde(default = "default_node_dns_port")]
    pub node_dns_health: u16,
}

/// Returns the port of the metrics of the DNS server of each node.
fn default_node_dns_port() -> u16 {
    // That of upstream's node-cache.
    9253
}

/// Returns the port of the proxy to the API servers.
fn default_proxy_port() -> u16 {
    // Also the port in settings of a release that had no proxy.
    6444
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            // The defaults of kubeadm, etcd and upstream's pkg/cluster/ports, which firewalls and
            // tools expect.
            api: 6443,
            store: 2379,
            store_peer: 2380,
            kubelet: 10250,
            kubelet_health: 10248,
            controller_manager: 10257,
            scheduler: 10259,
            proxy_metrics: 10249,
            proxy_health: 10256,
            // Not 53, where resolvers of the machine listen.
            dns: 10053,
            dns_health: 10054,
            api_proxy: default_proxy_port(),
            node_dns_health: default_node_dns_port(),
        }
    }
}

impl Ports {
    /// Returns the ports that a machine without a control plane uses, with component and flag.
    #[must_use]
    pub fn of_node(&self) -> [(&'static str, u16, &'static str); 4] {
        [
            ("the kubelet", self.kubelet, "--kubelet-port"),
            // Ports without a flag of their own: --pick-ports chooses all of them.
            ("the kubelet's health", self.kubelet_health, "--pick-ports"),
            ("kube-proxy's metrics", self.proxy_metrics, "--pick-ports"),
            ("kube-proxy's health", self.proxy_health, "--pick-ports"),
        ]
    }

    /// Returns each port with its component and flag.
    #[must_use]
    pub fn all(&self) -> [(&'static str, u16, &'static str); 11] {
        [
            ("the API server", self.api, "--api-port"),
            ("the store", self.store, "--store-port"),
            ("the store's peers", self.store_peer, "--store-peer-port"),
            ("the kubelet", self.kubelet, "--kubelet-port"),
            ("the kubelet's health", self.kubelet_health, "--pick-ports"),
            (
                "the controller manager",
                self.controller_manager,
                "--pick-ports",
            ),
            ("the scheduler", self.scheduler, "--pick-ports"),
            ("kube-proxy's metrics", self.proxy_metrics, "--pick-ports"),
            ("kube-proxy's health", self.proxy_health, "--pick-ports"),
            ("cluster DNS", self.dns, "--dns-port"),
            ("the health of cluster DNS", self.dns_health, "--pick-ports"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_ports_are_distinct() {
        let mut ports = Ports::default().all().map(|(_, port, _)| port);
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "{ports:?}");
    }
}
