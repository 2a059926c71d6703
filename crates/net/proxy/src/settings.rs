//! The settings of the proxy.

use crate::conntrack_settings::ConntrackSettings;
use ipnet::IpNet;
use net_policy::AgentSettings;
use std::net::SocketAddr;
use std::time::Duration;

/// Interval at which the installed rules are checked while nothing changes: upstream's default sync
/// period.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The proxy's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the node.
    pub node_name: String,
    /// Ranges of pods.
    pub pod_ranges: Vec<IpNet>,
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: u8,
    /// Interval of the checks of rules if the kernel does not notify of their changes, and half of
    /// the time after which a change that could not be applied makes the proxy unhealthy.
    pub sync_period: Duration,
    /// `primary`, ranges, or empty for the default.
    pub node_port_addresses: Vec<String>,
    /// Limits and timeouts of connection tracking.
    pub conntrack: ConntrackSettings,
    /// Settings of the agent of NetworkPolicies; None if this process does not enforce them.
    pub policies: Option<AgentSettings>,
    /// Listen address of health checks.
    pub healthz: Option<SocketAddr>,
    /// Listen address of metrics.
    pub metrics: Option<SocketAddr>,
}

/// Sets the limits and timeouts of connection tracking.
///
/// # Errors
/// The settings could not be applied because the task panicked.
pub async fn apply_conntrack_settings(settings: &Settings) -> anyhow::Result<()> {
    let conntrack = settings.conntrack.clone();
    tokio::task::spawn_blocking(move || conntrack.apply()).await?;
    Ok(())
}
