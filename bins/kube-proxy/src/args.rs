//! The command line, and the configuration file that it may name. A flag wins over the file.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use base_telemetry::LogOptions;
use clap::Parser;
use net_proxy::{Configuration, Settings};

/// Carries connections to Services on to their endpoints, by rules in the kernel.
#[derive(Debug, Parser)]
#[command(name = "kube-proxy", version, about)]
pub struct Cli {
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
    /// Configuration file (KubeProxyConfiguration)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to reach the API server
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The node's name [default: the host's]
    #[arg(long, value_name = "NAME")]
    hostname_override: Option<String>,
    /// Ranges of pods, separated by commas: what comes from there keeps its source
    #[arg(long, value_name = "CIDR,...")]
    cluster_cidr: Option<String>,
    /// Mode; only nftables is offered
    #[arg(long, value_parser = ["nftables"])]
    proxy_mode: Option<String>,
    /// Address of health checks; empty for none [default: 0.0.0.0:10256]
    #[arg(long, value_name = "IP:PORT")]
    healthz_bind_address: Option<String>,
    /// Address of metrics; empty for none [default: 127.0.0.1:10249]
    #[arg(long, value_name = "IP:PORT")]
    metrics_bind_address: Option<String>,
    /// Addresses that node ports answer at: `primary`, or ranges
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    nodeport_addresses: Vec<String>,
    /// Hide all sources behind the node's address
    #[arg(long)]
    masquerade_all: bool,
    /// Bit of the packet mark that asks for masquerading [default: 14]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=31))]
    nftables_masquerade_bit: Option<u8>,
    /// Remove all rules and end
    #[arg(long)]
    pub cleanup: bool,
}

impl Cli {
    /// The kubeconfig and the settings.
    pub fn settings(self) -> anyhow::Result<(Option<PathBuf>, Settings)> {
        let file = self.config.as_deref().map(Configuration::read).transpose()?.unwrap_or_default();
        let text = |flag: Option<String>, file: String| flag.unwrap_or(file);
        let from_file = Some(file.client_connection.kubeconfig).filter(|path| !path.is_empty()).map(PathBuf::from);
        let name = text(self.hostname_override, file.hostname_override);
        let node_port_addresses = match self.nodeport_addresses.is_empty() {
            true => file.node_port_addresses.unwrap_or_default(),
            false => self.nodeport_addresses,
        };
        let settings = Settings {
            node_name: if name.is_empty() { host_name() } else { name.to_lowercase() },
            pod_ranges: ranges(&text(self.cluster_cidr, file.cluster_cidr))?,
            masquerade_all: self.masquerade_all || file.nftables.masquerade_all,
            masquerade_bit: self.nftables_masquerade_bit.or(file.nftables.masquerade_bit).unwrap_or(14),
            node_port_addresses,
            healthz: address(self.healthz_bind_address, file.healthz_bind_address, "0.0.0.0:10256")?,
            metrics: address(self.metrics_bind_address, file.metrics_bind_address, "127.0.0.1:10249")?,
        };
        Ok((self.kubeconfig.or(from_file), settings))
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

fn ranges<T: std::str::FromStr>(text: &str) -> anyhow::Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty())
        .map(|range| {
            range.parse().with_context(|| format!("{range:?} is not a range of addresses such as 10.244.0.0/16"))
        })
        .collect()
}

/// A flag that is given but empty switches the endpoint off.
fn address(flag: Option<String>, file: String, default: &str) -> anyhow::Result<Option<SocketAddr>> {
    let text = match flag {
        Some(flag) if flag.is_empty() => return Ok(None),
        Some(flag) => flag,
        None if file.is_empty() => default.to_owned(),
        None => file,
    };
    text.parse().map(Some).with_context(|| format!("{text:?} is not an address and port such as 127.0.0.1:10256"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
