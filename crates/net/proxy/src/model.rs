//! What the proxy takes from a Service: one entry a port, with everything the rules depend on.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;

/// Address family: each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// nft's word for it, as a table's family and as a selector of header fields.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// nft's type of its addresses.
    #[must_use]
    pub fn address_type(self) -> &'static str {
        match self {
            Self::V4 => "ipv4_addr",
            Self::V6 => "ipv6_addr",
        }
    }
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }

    /// nft's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// `namespace/name`.
    pub service: String,
    /// The port's name; empty for the only one.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// The cluster addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// The port at the cluster, external and load balancer's addresses.
    pub port: u16,
    /// The port at the node's addresses; 0 for none.
    pub node_port: u16,
    /// Addresses that somebody else routes to the nodes.
    pub external_ips: Vec<IpAddr>,
    /// The load balancer's addresses.
    pub load_balancer_ips: Vec<IpAddr>,
    /// Who may use the load balancer's addresses; empty for everybody.
    pub source_ranges: Vec<IpNet>,
    /// Seconds for which a client stays with an endpoint.
    pub affinity: Option<u32>,
    /// Connections from inside stay on the node.
    pub internal_local: bool,
    /// Connections from outside stay on the node and keep their source.
    pub external_local: bool,
    /// Where load balancers ask whether this node has endpoints; 0 for nowhere.
    pub health_check_node_port: u16,
}

impl ServicePort {
    /// How it is called in rules and messages.
    #[must_use]
    pub fn readable(&self) -> String {
        format!("{}/{}/{}", self.service, self.protocol.word(), self.name)
    }
}

/// The ports of a Service that the proxy serves. Headless and ExternalName Services have none.
#[must_use]
pub fn service_ports(service: &Service) -> Vec<ServicePort> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let cluster_ips = addresses(spec.cluster_ips.as_deref().unwrap_or_default(), spec.cluster_ip.as_deref());
    if kind == "ExternalName" || cluster_ips.is_empty() {
        return Vec::new();
    }
    let meta = &service.metadata;
    let name =
        format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| timeout(spec));
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
                node_port: port.node_port.and_then(|p| u16::try_from(p).ok()).filter(|_| external).unwrap_or(0),
                external_ips: addresses(spec.external_ips.as_deref().unwrap_or_default(), None),
                load_balancer_ips: load_balancer_ips(service),
                source_ranges: source_ranges(spec.load_balancer_source_ranges.as_deref().unwrap_or_default()),
                affinity,
                internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
                external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
                health_check_node_port: health_port(spec.health_check_node_port),
            })
        })
        .collect()
}

fn timeout(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> u32 {
    const DEFAULT: u32 = 10_800;
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    config.and_then(|config| config.timeout_seconds).and_then(|s| u32::try_from(s).ok()).unwrap_or(DEFAULT)
}

fn health_port(port: Option<i32>) -> u16 {
    port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
}

fn addresses(list: &[String], single: Option<&str>) -> Vec<IpAddr> {
    let single = single.filter(|_| list.is_empty());
    list.iter().map(String::as_str).chain(single).filter_map(|text| text.parse().ok()).collect()
}

fn source_ranges(list: &[String]) -> Vec<IpNet> {
    list.iter().filter_map(|text| text.trim().parse().ok()).collect()
}

fn load_balancer_ips(service: &Service) -> Vec<IpAddr> {
    let ingress = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default();
    ingress
        .iter()
        .filter(|one| one.ip_mode.as_deref() != Some("Proxy"))
        .filter_map(|one| one.ip.as_deref()?.parse().ok())
        .collect()
}
