//! Addresses of objects.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Returns whether clients may read a DNS name as an IP address. The last label of such a name is a
/// number, as in 192.0.2.1, 127.1 and 0x7f000001.
pub fn is_like_address(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next();
    last.is_some_and(|label| {
        let digits = label.strip_prefix("0x").or(label.strip_prefix("0X"));
        match digits {
            Some(digits) => digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
            None => !label.is_empty() && label.bytes().all(|digit| digit.is_ascii_digit()),
        }
    }) || name.parse::<IpAddr>().is_ok()
}

fn parse_addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> BTreeSet<IpAddr> {
    let addresses = texts.into_iter().filter_map(|text| text.parse().ok());
    addresses.collect()
}

/// Returns the IP addresses in a node's status.
pub fn list_node_addresses(node: &Node) -> BTreeSet<IpAddr> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_deref());
    let addresses = addresses
        .unwrap_or_default()
        .iter()
        .filter(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"));
    parse_addresses(addresses.map(|address| &address.address))
}

/// Returns the addresses at which a Service is reached.
pub fn list_service_addresses(service: &Service) -> BTreeSet<IpAddr> {
    let spec = service.spec.iter();
    let of_spec = spec.flat_map(|spec| {
        let lists = [&spec.cluster_ips, &spec.external_ips];
        lists.into_iter().flatten().flatten()
    });
    let balancer = service
        .status
        .iter()
        .filter_map(|status| status.load_balancer.as_ref());
    let ingress = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
    parse_addresses(of_spec.chain(ingress.filter_map(|ingress| ingress.ip.as_ref())))
}

/// Returns the addresses of the endpoints of a slice.
pub fn list_endpoint_addresses(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let endpoints = slice.endpoints.iter().flatten();
    parse_addresses(endpoints.flat_map(|endpoint| &endpoint.addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_clients_may_read_as_an_address_is_recognized() {
        for (name, is_address) in [
            ("w1", false),
            ("w1.example.com", false),
            ("192.0.2.1", true),
            ("192.0.2.1.", true),
            ("127.1", true),
            ("3221225985", true),
            ("0x7f000001", true),
            ("w.0x1", true),
            ("::1", true),
            ("1a", false),
            ("0xg", false),
        ] {
            assert_eq!(is_like_address(name), is_address, "{name}");
        }
    }
}
