//! Selects the endpoints of a Service's port for a connection.

use std::net::{IpAddr, SocketAddr};

use api_semantics::endpoints::{is_endpoint_ready, is_endpoint_serving, is_endpoint_terminating};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::model::ServicePort;
use net_nft::Family;

/// One endpoint of one port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Accepts new connections.
    pub ready: bool,
    /// Accepts connections while it terminates.
    pub serving: bool,
    /// Terminating.
    pub terminating: bool,
    /// On this node.
    pub local: bool,
    /// On this node, or it is unknown on which.
    pub may_be_local: bool,
    /// Nodes that should prefer it.
    pub for_nodes: Vec<String>,
    /// Zones that should prefer it.
    pub for_zones: Vec<String>,
}

/// Returns the endpoints of a port, of one family, sorted and without duplicates.
#[must_use]
pub fn ready_endpoints(
    port: &ServicePort,
    family: Family,
    slices: &[impl AsRef<EndpointSlice>],
    node: &str,
) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for slice in slices.iter().map(AsRef::as_ref) {
        // Slices of type FQDN are for other consumers.
        if slice.address_type != family.api_name() {
            continue;
        }
        for number in port_numbers(port, slice) {
            found.extend(
                slice
                    .endpoints
                    .iter()
                    .flatten()
                    .filter_map(|endpoint| read_endpoint(endpoint, number, node))
                    // nft would reject the whole transaction.
                    .filter(|endpoint| Family::of(endpoint.address.ip()) == family),
            );
        }
    }
    // Two slices may have the same address: an endpoint moves from one to the other, or a new pod
    // gets the address of one that terminates. Keep the entry that accepts connections.
    found.sort_by(|a, b| {
        endpoint_preference(a)
            .cmp(&endpoint_preference(b))
            .then_with(|| a.cmp(b))
    });
    found.dedup_by_key(|endpoint| endpoint.address);
    found
}

/// Returns the sort key; the first endpoint with an address is kept.
fn endpoint_preference(endpoint: &Endpoint) -> (SocketAddr, bool, bool, bool) {
    (
        endpoint.address,
        endpoint.terminating,
        !endpoint.ready,
        !endpoint.serving,
    )
}

fn port_numbers(port: &ServicePort, slice: &EndpointSlice) -> Vec<u16> {
    let protocol = port.protocol.nft_name().to_uppercase();
    let ports = slice.ports.as_deref().unwrap_or_default().iter();
    ports
        .filter(|candidate| candidate.name.as_deref().unwrap_or_default() == port.name)
        .filter(|candidate| candidate.protocol.as_deref().unwrap_or("TCP") == protocol)
        .filter_map(|candidate| u16::try_from(candidate.port?).ok())
        // The API accepts 0, and older releases of iptables reject a whole transaction for it.
        .filter(|port| *port > 0)
        .collect()
}

fn read_endpoint(
    endpoint: &k8s_openapi::api::discovery::v1::Endpoint,
    port: u16,
    node: &str,
) -> Option<Endpoint> {
    // The addresses of one endpoint are interchangeable, and clients may use the first only.
    let ip: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let conditions = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    Some(Endpoint {
        address: SocketAddr::new(ip, port),
        ready: is_endpoint_ready(conditions),
        serving: is_endpoint_serving(conditions),
        terminating: is_endpoint_terminating(conditions),
        local: endpoint.node_name.as_deref() == Some(node),
        may_be_local: endpoint
            .node_name
            .as_deref()
            .is_none_or(|name| name == node),
        for_nodes: hints
            .and_then(|h| h.for_nodes.as_ref())
            .map(|all| all.iter().map(|n| n.name.clone()).collect())
            .unwrap_or_default(),
        for_zones: hints
            .and_then(|h| h.for_zones.as_ref())
            .map(|all| all.iter().map(|z| z.name.clone()).collect())
            .unwrap_or_default(),
    })
}

/// Returns the ready endpoints; if there are none, those that terminate but still serve.
fn usable_endpoints<'a>(all: impl Iterator<Item = &'a Endpoint> + Clone) -> Vec<&'a Endpoint> {
    let ready: Vec<_> = all.clone().filter(|endpoint| endpoint.ready).collect();
    if !ready.is_empty() {
        return ready;
    }
    // KEP-1669: during a rollout all endpoints of a node may terminate, and they still serve.
    all.filter(|endpoint| endpoint.serving && endpoint.terminating)
        .collect()
}

/// Returns the endpoints for a policy: those of this node only, or all, filtered by topology hints.
#[must_use]
pub fn choose_endpoints<'a>(
    all: &'a [Endpoint],
    local_only: bool,
    node: &str,
    zone: Option<&str>,
) -> Vec<&'a Endpoint> {
    // Hints do not apply: the policy already chose the nearest endpoints.
    if local_only {
        return usable_endpoints(all.iter().filter(|endpoint| endpoint.local));
    }
    let everywhere = usable_endpoints(all.iter());
    by_hints(&everywhere, node, zone).unwrap_or(everywhere)
}

/// Filters by hints; None unless every endpoint has hints and one of them matches this node.
fn by_hints<'a>(all: &[&'a Endpoint], node: &str, zone: Option<&str>) -> Option<Vec<&'a Endpoint>> {
    let pick = |hints: fn(&Endpoint) -> &Vec<String>, here: &str| {
        // One endpoint without a hint turns them off: the controller is changing the hints, and
        // some zones may have none yet.
        let complete = all
            .iter()
            .all(|endpoint| endpoint.ready && !hints(endpoint).is_empty());
        let near: Vec<_> = all
            .iter()
            .copied()
            .filter(|e| hints(e).iter().any(|name| name == here))
            .collect();
        (complete && !near.is_empty()).then_some(near)
    };
    pick(|endpoint| &endpoint.for_nodes, node)
        .or_else(|| pick(|endpoint| &endpoint.for_zones, zone?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn endpoint(last: u8, flags: &str) -> Endpoint {
        Endpoint {
            address: SocketAddr::from(([10, 0, 0, last], 80)),
            ready: flags.contains('r'),
            serving: flags.contains('s') || flags.contains('r'),
            terminating: flags.contains('t'),
            local: flags.contains('l'),
            may_be_local: flags.contains('l'),
            for_nodes: if flags.contains('h') {
                vec![if flags.contains('l') { "n1" } else { "n2" }.into()]
            } else {
                vec![]
            },
            for_zones: vec![],
        }
    }

    #[track_caller]
    fn check(flags: &[&str], local_only: bool, expect: &[u8]) {
        let all: Vec<_> = flags
            .iter()
            .zip(1..)
            .map(|(flags, last)| endpoint(last, flags))
            .collect();
        let got: Vec<u8> = choose_endpoints(&all, local_only, "n1", None)
            .iter()
            .map(|e| {
                if let IpAddr::V4(ip) = e.address.ip() {
                    ip.octets()[3]
                } else {
                    0
                }
            })
            .collect();
        assert_eq!(got, expect, "{flags:?}");
    }

    #[test]
    fn address_in_two_slices_is_ready_if_one_of_them_is() {
        let slice = |ready: bool, terminating: bool| -> EndpointSlice {
            let conditions =
                serde_json::json!({ "ready": ready, "serving": true, "terminating": terminating });
            serde_json::from_value(serde_json::json!({
                "addressType": "IPv4", "ports": [{ "name": "", "port": 80, "protocol": "TCP" }],
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": conditions }],
            }))
            .unwrap()
        };
        let service = serde_json::from_value(serde_json::json!({
            "metadata": {}, "spec": { "clusterIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] }
        }));
        let port = crate::model::service_ports(&service.unwrap()).remove(0);
        let (new, ending) = (Arc::new(slice(true, false)), Arc::new(slice(false, true)));
        for slices in [[new.clone(), ending.clone()], [ending, new]] {
            let found = ready_endpoints(&port, Family::V4, &slices, "n1");
            assert_eq!(found.iter().map(|e| e.ready).collect::<Vec<_>>(), [true]);
        }
    }

    #[test]
    fn address_of_another_family_than_its_slice_is_ignored() {
        let tree = json!({
            "addressType": "IPv4", "ports": [{ "name": "", "port": 80 }],
            "endpoints": [{ "addresses": ["fd00::1"] }, { "addresses": ["10.0.0.1"] }],
        });
        let slice: EndpointSlice = serde_json::from_value(tree).unwrap();
        let spec = json!({ "clusterIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] });
        let service = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        let port = crate::model::service_ports(&service).remove(0);
        let found = ready_endpoints(&port, Family::V4, &[Arc::new(slice)], "n1");
        let found: Vec<String> = found.iter().map(|e| e.address.to_string()).collect();
        assert_eq!(found, ["10.0.0.1:80"]);
    }

    #[test]
    fn ports_that_are_none_are_ignored() {
        for (number, expect) in [
            (json!(80), vec!["10.0.0.1:80"]),
            (json!(0), vec![]),
            (json!(-1), vec![]),
            (json!(65_536), vec![]),
            (json!(null), vec![]),
        ] {
            let tree = json!({
                "addressType": "IPv4", "ports": [{ "name": "", "port": number }],
                "endpoints": [{ "addresses": ["10.0.0.1"] }],
            });
            let slice: EndpointSlice = serde_json::from_value(tree).unwrap();
            let spec = json!({ "clusterIPs": ["10.96.0.1"], "ports": [{ "port": 80 }] });
            let service = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
            let port = crate::model::service_ports(&service).remove(0);
            let found = ready_endpoints(&port, Family::V4, &[Arc::new(slice)], "n1");
            let found: Vec<String> = found.iter().map(|e| e.address.to_string()).collect();
            assert_eq!(found, expect, "{number}");
        }
    }

    #[test]
    fn endpoints_are_chosen_by_policy_readiness_and_hints() {
        check(&["r", "r", ""], false, &[1, 2]);
        check(&["st", "s", ""], false, &[1]);
        check(&["r", "st"], false, &[1]);
        check(&["r", "rl"], true, &[2]);
        check(&["r", "stl"], true, &[2]);
        check(&["r"], true, &[]);
        check(&["rhl", "rh"], false, &[1]);
        check(&["rhl", "r"], false, &[1, 2]);
        check(&["rh", "rh"], false, &[1, 2]);
    }

    #[test]
    fn conditions_are_read_as_the_shared_table_says() {
        let cases: Vec<Value> =
            serde_json::from_str(api_semantics::cases::ENDPOINT_CONDITIONS).unwrap();
        for case in cases {
            let mut tree = json!({"addresses": ["10.0.0.1"]});
            tree["conditions"] = case["conditions"].clone();
            let found = read_endpoint(&serde_json::from_value(tree).unwrap(), 80, "n").unwrap();
            let read = json!({"ready": found.ready, "serving": found.serving,
                "terminating": found.terminating});
            assert_eq!(read, case["read"], "{case}");
        }
    }
}
