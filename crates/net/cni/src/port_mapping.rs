//! Host ports as the runtime passes them, and as records hold them. Pure.

use std::fmt;
use std::net::IpAddr;

use net_nft::{Family, Protocol};
use serde::{Deserialize, Serialize};

use crate::error::PluginError;

/// An entry of the capability `portMappings`. containerd writes the names with capitals: programs
/// in Go read fields whatever the case of their names.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PortMapping {
    #[serde(alias = "HostPort")]
    host_port: i64,
    #[serde(alias = "ContainerPort")]
    container_port: i64,
    #[serde(default, alias = "Protocol")]
    protocol: String,
    #[serde(default, rename = "hostIP", alias = "HostIP")]
    host_ip: String,
}

/// A port of the node that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HostPort {
    /// `tcp`, `udp` or `sctp`.
    pub(crate) protocol: String,
    /// Address of the node; None is each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// Both families, or that of an unspecified address.
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) port: u16,
    pub(crate) target: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(f, "{address} ")?;
        }
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

impl HostPort {
    /// Parses the list of a runtime. Ports of containers without a port of the node are left out.
    ///
    /// # Errors
    /// A number, protocol or address is not valid.
    pub(crate) fn parse_all(mappings: &[PortMapping]) -> Result<Vec<Self>, PluginError> {
        mappings
            .iter()
            .filter(|mapping| mapping.host_port != 0)
            .map(Self::parse)
            .collect()
    }

    fn parse(mapping: &PortMapping) -> Result<Self, PluginError> {
        let refuse = |what: &str, value: &dyn fmt::Debug| {
            PluginError::invalid_config(format!("portMappings: {what} {value:?} is not valid"))
        };
        let read_port = |what: &str, number: i64| match u16::try_from(number) {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(refuse(what, &number)),
        };
        let protocol = Protocol::parse(Some(&mapping.protocol.to_ascii_uppercase()))
            .ok_or_else(|| refuse("protocol", &mapping.protocol))?;
        let address: Option<IpAddr> = match mapping.host_ip.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| refuse("hostIP", &text))?),
        };
        let is_family = |is_v4: bool| address.is_none_or(|address| address.is_ipv4() == is_v4);
        Ok(Self {
            protocol: protocol.nft_name().to_owned(),
            ipv4: is_family(true),
            ipv6: is_family(false),
            address: address.filter(|address| !address.is_unspecified()),
            port: read_port("hostPort", mapping.host_port)?,
            target: read_port("containerPort", mapping.container_port)?,
        })
    }

    /// Returns whether the port is of an address family.
    pub(crate) fn has_family(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.ipv4,
            Family::V6 => self.ipv6,
        }
    }

    /// Returns whether another port of the same pod is this one, and leads elsewhere.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        self.collides(other) && self.address == other.address && self.target != other.target
    }

    /// Returns whether both have one address and port of the node.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && ((self.ipv4 && other.ipv4) || (self.ipv6 && other.ipv6))
            && match (self.address, other.address) {
                (Some(own), Some(other)) => own == other,
                // The more specific one would take the connections of the other.
                _ => true,
            }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn parse(tree: serde_json::Value) -> Result<Vec<HostPort>, PluginError> {
        HostPort::parse_all(&serde_json::from_value::<Vec<PortMapping>>(tree).unwrap())
    }

    fn port(address: &str, number: u16, protocol: &str) -> HostPort {
        let tree = json!([{ "hostPort": number, "containerPort": 80, "protocol": protocol, "hostIP": address }]);
        parse(tree).unwrap().remove(0)
    }

    #[test]
    fn mapping_without_a_host_port_is_left_out_and_a_wrong_one_refused() {
        let zero = json!([{ "hostPort": 0, "containerPort": 80 }]);
        assert_eq!(parse(zero).unwrap(), []);
        for wrong in [
            json!([{ "hostPort": 70000, "containerPort": 80 }]),
            json!([{ "hostPort": 1, "containerPort": 0 }]),
            json!([{ "hostPort": -1, "containerPort": 80 }]),
            json!([{ "hostPort": 1, "containerPort": 80, "protocol": "icmp" }]),
            json!([{ "hostPort": 1, "containerPort": 80, "hostIP": "x; drop" }]),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_read_as_containerd_writes_them() {
        let tree =
            json!([{ "HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": "" }]);
        assert_eq!(parse(tree).unwrap(), [port("", 8080, "tcp")]);
    }

    /// A pod may have a port of its own for an address beside that for all.
    #[test]
    fn port_of_a_pod_leads_to_one_of_its_ports() {
        let http = port("", 80, "tcp");
        let elsewhere = HostPort {
            target: 81,
            ..http.clone()
        };
        assert!(http.contradicts(&elsewhere));
        assert!(!http.contradicts(&http));
        assert!(!http.contradicts(&port("192.0.2.1", 80, "tcp")));
    }

    #[test]
    fn ports_of_one_address_and_protocol_collide() {
        let http = port("", 80, "tcp");
        for (other, expect) in [
            (port("", 80, "TCP"), true),
            (port("", 81, "tcp"), false),
            (port("", 80, "udp"), false),
            (port("192.0.2.1", 80, ""), true),
            (port("::", 80, "tcp"), true),
        ] {
            assert_eq!(http.collides(&other), expect, "{other:?}");
        }
        let first = port("192.0.2.1", 80, "tcp");
        assert!(!first.collides(&port("192.0.2.2", 80, "tcp")));
        assert!(!first.collides(&port("::", 80, "tcp")));
        assert!(first.collides(&port("0.0.0.0", 80, "tcp")));
    }
}
