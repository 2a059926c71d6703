//! Addresses at which clients reach the gateway.

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use serde_json::{Value, json};

/// Maximum number of addresses in the status of a Gateway.
const MAX_ADDRESSES: usize = 16;

/// An address at which clients reach the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IP address.
    Ip(String),
    /// Host name.
    Hostname(String),
}

/// Returns the addresses that a load balancer has for a Service.
pub fn read_addresses(service: &Service) -> Vec<Address> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let entries = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let read = |entry: &LoadBalancerIngress| {
        let ip = entry.ip.clone().map(Address::Ip);
        ip.or_else(|| entry.hostname.clone().map(Address::Hostname))
    };
    entries.into_iter().flatten().filter_map(read).collect()
}

/// Returns the addresses in the form of an Ingress' status.
pub fn encode_for_ingress(addresses: &[Address]) -> Vec<Value> {
    let encode = |address: &Address| match address {
        Address::Ip(ip) => json!({"ip": ip}),
        Address::Hostname(name) => json!({"hostname": name}),
    };
    addresses.iter().map(encode).collect()
}

/// Returns the addresses in the form of a Gateway's status, as many as it may have.
pub fn encode_for_gateway(addresses: &[Address]) -> Vec<Value> {
    let encode = |address: &Address| match address {
        Address::Ip(ip) => json!({"type": "IPAddress", "value": ip}),
        Address::Hostname(name) => json!({"type": "Hostname", "value": name}),
    };
    addresses.iter().take(MAX_ADDRESSES).map(encode).collect()
}
