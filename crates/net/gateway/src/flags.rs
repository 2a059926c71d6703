//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base_duration::parse_unsigned;
use base_telemetry::LogOptions;
use clap::Parser;
use component::{AccessFlags, LeaderElectionFlags, ServingFlags};
use ipnet::IpNet;

use crate::listener_ports::ListenerPortRange;
use crate::port_range::PortRange;

/// Name of the controller in IngressClasses and GatewayClasses.
pub const CONTROLLER: &str = "ironclad/gateway";

/// Forwards HTTP requests to Services, as Ingresses and the Gateway API say
#[derive(Debug, Parser)]
#[command(
    name = "ironclad-gateway",
    version,
    about,
    mut_arg("secure_port", |arg| arg.default_value("8444")),
    mut_arg("leader_elect_resource_name", |arg| arg.default_value("ironclad-gateway")),
    mut_arg("leader_elect_resource_namespace", |arg| arg.default_value("ironclad-gateway")),
)]
pub struct Flags {
    #[command(flatten)]
    pub(crate) logs: LogOptions,
    /// Kubeconfig of the API server [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address and port to serve HTTP on
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8080")]
    pub http_listen: SocketAddr,
    /// Address and port to serve HTTPS on
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8443")]
    pub https_listen: SocketAddr,
    /// Port at which clients reach HTTP: the one of listeners of Gateways and of redirects
    #[arg(long, value_name = "PORT", default_value_t = 80)]
    pub http_port: u16,
    /// Port at which clients reach HTTPS
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    pub https_port: u16,
    /// Name of the controller in IngressClasses and GatewayClasses
    #[arg(long, value_name = "NAME", default_value = CONTROLLER)]
    pub controller_name: String,
    /// Service of the gateway: its addresses are written into statuses
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub publish_service: Option<String>,
    /// Ports for Gateways with addresses of their own, two for each: a Gateway whose listener has
    /// the port and hostname of another one gets a Service like that of the gateway
    /// [default: all Gateways share the addresses]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) gateway_ports: Option<PortRange>,
    /// Port, or ports, that listeners of Gateways with addresses of their own may have besides
    /// --http-port and --https-port; may be repeated [default: none]
    #[arg(long, value_name = "PORT|FIRST-LAST")]
    pub(crate) gateway_listener_port: Vec<ListenerPortRange>,
    /// Annotation of the gateway's Service that the Services of such Gateways get; may be repeated
    /// [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) gateway_service_annotation: Vec<String>,
    /// Annotation of a Gateway's spec.infrastructure that its Service gets; may be repeated
    /// [default: none]
    #[arg(long, value_name = "NAME")]
    pub(crate) gateway_infrastructure_annotation: Vec<String>,
    /// Address for statuses, an IP or a host name; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub publish_address: Vec<String>,
    /// Range of endpoints; may be repeated [default: the ranges of pods of the cluster's Nodes]
    #[arg(long, value_name = "CIDR")]
    pub endpoint_range: Vec<IpNet>,
    /// Maximum number of client connections of each port
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000)]
    pub max_connections: usize,
    /// Maximum number of requests in progress; each may occupy some 300 KiB of memory
    #[arg(long, value_name = "NUMBER", default_value_t = 4_000)]
    pub max_requests: usize,
    /// Time for a client to send the headers of a request; a connection without a request is closed
    /// within twice that time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_unsigned)]
    pub header_timeout: Duration,
    /// Time for an endpoint to send the headers of a response, from the last part of the request
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_unsigned)]
    pub response_timeout: Duration,
    /// Time in which nothing of a body or a WebSocket is transferred
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_unsigned)]
    pub idle_timeout: Duration,
    /// Maximum size of the body of a request in bytes; 0 for no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub max_body_size: u64,
    /// Time for which connections are accepted after the signal to stop
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_unsigned)]
    pub shutdown_delay: Duration,
    /// Time for open requests and WebSockets to finish after that
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_unsigned)]
    pub drain_timeout: Duration,
    #[command(flatten)]
    pub(crate) serving: ServingFlags,
    #[command(flatten)]
    pub(crate) access: AccessFlags,
    #[command(flatten)]
    pub(crate) election: LeaderElectionFlags,
}

impl Flags {
    /// Returns the options of logs.
    pub fn logs(&self) -> LogOptions {
        self.logs.clone()
    }

    /// Checks that Gateways get no port that has another use.
    ///
    /// # Errors
    /// A port of another flag is in the range.
    pub(crate) fn check_gateway_ports(&self) -> anyhow::Result<()> {
        let Some(range) = self.gateway_ports else {
            return Ok(());
        };
        for (flag, port) in [
            ("http-listen", self.http_listen.port()),
            ("https-listen", self.https_listen.port()),
            ("secure-port", self.serving.secure_port),
        ] {
            anyhow::ensure!(
                !range.contains(port),
                "port {port} of --{flag} is in the range of --gateway-ports, whose ports are those \
                 of single Gateways; choose another port or range"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ports_of_other_flags_are_not_those_of_gateways() {
        for (flags, expected) in [
            (&["--gateway-ports=20000-20063"][..], None),
            (&[], None),
            (
                &["--gateway-ports=8000-8090"],
                Some("port 8080 of --http-listen"),
            ),
            (
                &["--gateway-ports=8443-8444", "--secure-port=9000"],
                Some("port 8443 of --https-listen"),
            ),
            // The last port of an odd number is unused, but belongs to the range.
            (
                &["--gateway-ports=8000-8002", "--secure-port=8002"],
                Some("port 8002 of --secure-port"),
            ),
            (&["--gateway-ports=8000-8001", "--secure-port=8002"], None),
        ] {
            let command = ["ironclad-gateway"].iter().chain(flags);
            let checked = Flags::try_parse_from(command)
                .unwrap()
                .check_gateway_ports();
            let message = checked.err().map(|error| error.to_string());
            let begins = |prefix| {
                message
                    .as_ref()
                    .is_some_and(|text| text.starts_with(prefix))
            };
            let holds = expected.map_or(message.is_none(), begins);
            assert!(holds, "{flags:?}: {message:?}");
        }
    }
}
