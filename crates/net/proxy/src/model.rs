//! The proxy's view of a Service: one entry per port, with everything the rules depend on.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use net_nft::Protocol;

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// `namespace/name`.
    pub service: String,
    /// Name of the port; may be empty if it is the only one.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Cluster IPs.
    pub cluster_ips: Vec<IpAddr>,
    /// Port of the cluster, external and load balancer's addresses.
    pub port: u16,
    /// Node port; 0 for none.
    pub node_port: u16,
    /// External addresses, routed to the nodes by the network.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of the load balancer.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Sources allowed at the load balancer's addresses; None for all, empty for none.
    pub source_ranges: Option<Vec<IpNet>>,
    /// Session affinity timeout in seconds.
    pub affinity: Option<u32>,
    /// Traffic policy of internal connections is Local.
    pub internal_local: bool,
    /// Traffic policy of external connections is Local: they stay on the node and keep their
    /// source.
    pub external_local: bool,
    /// Health check port for load balancers; 0 for none.
    pub health_check_node_port: u16,
}

impl ServicePort {
    /// Returns the name in rules and messages.
    #[must_use]
    pub fn readable(&self) -> String {
        format!(
            "{}/{}/{}",
            self.service,
            self.protocol.nft_name(),
            self.name
        )
    }
}

/// Returns the ports of a Service. Headless and ExternalName Services have none.
#[must_use]
pub fn service_ports(service: &Service) -> Vec<ServicePort> {
    let Some(spec) = &service.spec else {
        return Vec::new();
    };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let cluster_ips = parse_addresses(
        spec.cluster_ips.as_deref().unwrap_or_default(),
        spec.cluster_ip.as_deref(),
    );
    // An ExternalName is an alias in DNS; there is no connection to translate.
    if kind == "ExternalName" || cluster_ips.is_empty() {
        return Vec::new();
    }
    let meta = &service.metadata;
    let name = format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    );
    let affinity =
        (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| read_affinity_timeout(spec));
    let external = matches!(kind, "NodePort" | "LoadBalancer");
    let ports = spec.ports.as_deref().unwrap_or_default().iter();
    ports
        .filter_map(|port| {
            Some(ServicePort {
                service: name.clone(),
                name: port.name.clone().unwrap_or_default(),
                protocol: Protocol::parse(port.protocol.as_deref())?,
                cluster_ips: cluster_ips.clone(),
                port: u16::try_from(port.port).ok()?,
                node_port: port
                    .node_port
                    .and_then(|p| u16::try_from(p).ok())
                    .filter(|_| external)
                    .unwrap_or(0),
                external_ips: parse_addresses(
                    spec.external_ips.as_deref().unwrap_or_default(),
                    None,
                ),
                load_balancer_ips: read_load_balancer_ips(service),
                source_ranges: spec
                    .load_balancer_source_ranges
                    .as_deref()
                    .filter(|list| !list.is_empty())
                    .map(parse_ranges),
                affinity,
                internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
                external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
                health_check_node_port: read_health_port(spec),
            })
        })
        .collect()
}

fn read_affinity_timeout(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> u32 {
    const DEFAULT: u32 = 10_800;
    let config = spec
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    config
        .and_then(|config| config.timeout_seconds)
        .and_then(|s| u32::try_from(s).ok())
        .unwrap_or(DEFAULT)
}

/// Returns the health check port; 0 unless the Service is of the type and policy that have one.
fn read_health_port(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> u16 {
    let needed = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local");
    let port = spec.health_check_node_port.filter(|_| needed);
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
}

fn parse_addresses(list: &[String], single: Option<&str>) -> Vec<IpAddr> {
    let single = single.filter(|_| list.is_empty());
    list.iter()
        .map(String::as_str)
        .chain(single)
        .filter_map(parse_address)
        .collect()
}

fn parse_ranges(list: &[String]) -> Vec<IpNet> {
    list.iter()
        .filter_map(|text| parse_range(text.trim()))
        .collect()
}

/// Parses a range. Stored objects of old releases may have IPv4 numbers with leading zeros.
fn parse_range(text: &str) -> Option<IpNet> {
    if let Ok(range) = text.parse() {
        return Some(range);
    }
    let (address, length) = text.split_once('/')?;
    IpNet::new(parse_address(address)?, strip_zeros(length).parse().ok()?).ok()
}

/// Parses an address, with leading zeros in its numbers, which are decimal in IPv4. An IPv4 address
/// that is mapped to IPv6 is one of IPv4.
fn parse_address(text: &str) -> Option<IpAddr> {
    let group = |group: &str| {
        let numbers: Vec<&str> = group.split('.').map(strip_zeros).collect();
        numbers.join(".")
    };
    let groups: Vec<String> = text.split(':').map(group).collect();
    let address: IpAddr = groups.join(":").parse().ok()?;
    Some(address.to_canonical())
}

fn strip_zeros(number: &str) -> &str {
    match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0",
        significant => significant,
    }
}

fn read_load_balancer_ips(service: &Service) -> Vec<IpAddr> {
    let ingress = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default();
    ingress
        .iter()
        // KEP-1860: such a load balancer must see the connection, so the node must not short-
        // circuit it.
        .filter(|one| one.ip_mode.as_deref() != Some("Proxy"))
        .filter_map(|one| parse_address(one.ip.as_deref()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_old_objects_are_parsed() {
        for (text, expect) in [
            ("10.96.0.7", Some("10.96.0.7")),
            ("010.096.000.07", Some("10.96.0.7")),
            ("fd00::7", Some("fd00::7")),
            ("fd00::0007", Some("fd00::7")),
            ("::", Some("::")),
            ("::ffff:010.0.0.1", Some("10.0.0.1")),
            ("64:ff9b::010.0.0.1", Some("64:ff9b::a00:1")),
            ("10.96.0.256", None),
            ("10.96.0", None),
            ("10.96..7", None),
            ("0x0a.0.0.1", None),
            ("fe80::1%eth0", None),
            (" 10.0.0.1", None),
            ("None", None),
            ("", None),
        ] {
            let found = parse_address(text).map(|ip| ip.to_string());
            assert_eq!(found.as_deref(), expect, "{text}");
        }
    }
}
