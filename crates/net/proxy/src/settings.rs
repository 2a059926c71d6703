//! The settings of the proxy.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use net_announce::AgentSettings as AnnounceSettings;
use net_policy::AgentSettings;

use crate::conntrack_settings::ConntrackSettings;
use crate::detect_local::DetectLocal;
use crate::local::NodePortAddresses;

/// Interval at which the installed rules are checked while nothing changes: upstream's default sync
/// period.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The back end that installs rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// nftables.
    Nftables,
    /// iptables.
    Iptables {
        /// Node ports are open at 127.0.0.0/8.
        localhost_node_ports: bool,
    },
}

impl Mode {
    /// Returns upstream's name of the mode.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables { .. } => "iptables",
        }
    }
}

/// The proxy's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The back end.
    pub mode: Mode,
    /// Name of the node.
    pub node_name: String,
    /// Detection of connections from pods.
    pub detect_local: DetectLocal,
    /// Address of the node that replaces the one of its family in the Node object.
    pub bind_address: Option<IpAddr>,
    /// End if an address of health checks or metrics can't be bound.
    pub bind_hard_fail: bool,
    /// Score of the kernel's out-of-memory killer, -1000 to 1000.
    pub oom_score_adj: i32,
    /// Masquerade all connections.
    pub masquerade_all: bool,
    /// Bit of the packet mark for masquerading.
    pub masquerade_bit: u8,
    /// Interval of the checks of rules without notifications of the kernel. A change that is not
    /// applied for two intervals makes the proxy unhealthy.
    pub sync_period: Duration,
    /// Least time between two syncs.
    pub min_sync_period: Duration,
    /// Addresses of node ports.
    pub node_port_addresses: NodePortAddresses,
    /// Limits and timeouts of connection tracking.
    pub conntrack: ConntrackSettings,
    /// Settings of the agent of NetworkPolicies; None if this process does not enforce them.
    pub policies: Option<AgentSettings>,
    /// Settings of the announcements of load balancers' addresses; None if this process announces
    /// none.
    pub announcements: Option<AnnounceSettings>,
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

/// Sets the score of the out-of-memory killer for this process. A score that can't be set is
/// logged: lowering it needs `CAP_SYS_RESOURCE`, and Services work without it.
pub fn apply_oom_score(score: i32) {
    let write = || std::fs::write("/proc/self/oom_score_adj", score.to_string());
    if let Err(error) = base_task::blocking(write) {
        tracing::info!(
            %error,
            score,
            "the score of the out-of-memory killer can't be set and stays as it was; start \
             kube-proxy with CAP_SYS_RESOURCE to set it"
        );
    }
}
