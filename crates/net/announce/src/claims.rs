//! The addresses that are announced, computed from Services and EndpointSlices.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use api_address_pool::{ALLOCATION_CONDITION, AddressPool, LOAD_BALANCER_CLASS, parse_allocation};
use api_semantics::endpoints::is_endpoint_ready;
use client::ObjectExt;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// An address, and the nodes that may own it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// Nodes that may own it; None for all.
    pub nodes: Option<BTreeSet<String>>,
}

/// The announcements that this node should make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Desired {
    /// The node may announce addresses.
    pub is_eligible: bool,
    /// Identity of the cluster and its pool.
    pub cluster: u64,
    /// The addresses.
    pub claims: Vec<Claim>,
}

/// Returns the addresses of Services that the nodes should announce. `slices_of` returns the
/// EndpointSlices of a Service by its key.
///
/// A status may have any address: only those of the pool are announced, and none of `excluded`.
/// Another load balancer may have addresses of the pool: only those are announced that the
/// controller has recorded in its condition.
pub fn list_claims(
    services: &[Arc<Service>],
    slices_of: impl Fn(&str) -> Vec<Arc<EndpointSlice>>,
    pool: &AddressPool,
    excluded: &HashSet<IpAddr>,
) -> Vec<Claim> {
    let mut services: Vec<_> = services
        .iter()
        .filter(|service| is_announced(service))
        .collect();
    // If several have an address, it is that of the oldest, as for the controller.
    services.sort_by_cached_key(|service| {
        let created = service.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), service.key())
    });
    let mut seen = HashSet::new();
    let mut claims = Vec::new();
    for service in services {
        let addresses = list_addresses(service);
        let allocated = list_allocated(service);
        let mut announced = addresses
            .filter(|ip| allocated.contains(ip))
            .filter(|ip| pool.contains(*ip) && !excluded.contains(ip))
            .filter(|ip| seen.insert(*ip))
            .peekable();
        if announced.peek().is_none() {
            continue;
        }
        let slices = is_local(service).then(|| slices_of(&service.key()));
        claims.extend(announced.map(|address| Claim {
            address,
            nodes: slices.as_deref().map(|slices| list_nodes(slices, address)),
        }));
    }
    claims
}

fn has_spec(service: &Service, matches: impl Fn(&ServiceSpec) -> bool) -> bool {
    service.spec.as_ref().is_some_and(matches)
}

/// Returns whether the Service is one of the pool.
pub(crate) fn is_announced(service: &Service) -> bool {
    has_spec(service, |spec| {
        let class = spec.load_balancer_class.as_deref();
        spec.type_.as_deref() == Some("LoadBalancer")
            && class.is_none_or(|class| class == LOAD_BALANCER_CLASS)
    })
}

/// Returns whether external connections stay on the node at which they arrive.
pub(crate) fn is_local(service: &Service) -> bool {
    has_spec(service, |spec| {
        spec.external_traffic_policy.as_deref() == Some("Local")
    })
}

fn list_addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let status = service.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let points = balancer.and_then(|balancer| balancer.ingress.as_deref());
    let points = points.unwrap_or_default().iter();
    points
        // kube-proxy has no rules for addresses of a proxy.
        .filter(|point| point.ip_mode.as_deref().is_none_or(|mode| mode == "VIP"))
        .filter_map(|point| point.ip.as_deref()?.parse().ok())
}

/// Returns the addresses that the controller has recorded.
fn list_allocated(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    let condition = conditions.find(|condition| condition.type_ == ALLOCATION_CONDITION);
    let message = condition.map(|condition| condition.message.as_str());
    parse_allocation(message.unwrap_or_default()).collect()
}

/// Returns the nodes with ready endpoints of the address's family. If there are none at all, those
/// with endpoints that terminate and still serve, as kube-proxy uses them.
fn list_nodes(slices: &[Arc<EndpointSlice>], address: IpAddr) -> BTreeSet<String> {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let nodes_with = |is_usable: fn(&Endpoint) -> bool| -> BTreeSet<String> {
        let slices = slices.iter().filter(|slice| slice.address_type == family);
        let endpoints = slices.flat_map(|slice| slice.endpoints.iter());
        let endpoints = endpoints.flatten().filter(|endpoint| is_usable(endpoint));
        endpoints.filter_map(|e| e.node_name.clone()).collect()
    };
    let ready = nodes_with(|endpoint| is_endpoint_ready(endpoint.conditions.as_ref()));
    match ready.is_empty() {
        true => nodes_with(serves_while_terminating),
        false => ready,
    }
}

fn serves_while_terminating(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| {
        conditions.terminating == Some(true) && conditions.serving == Some(true)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, created: &str, spec: &Value, points: &Value) -> Arc<Service> {
        let mut merged = json!({"type": "LoadBalancer"});
        for (key, value) in spec.as_object().unwrap() {
            merged[key] = value.clone();
        }
        let object = json!({
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": created},
            "spec": merged,
            "status": {"loadBalancer": {"ingress": points}, "conditions": [{
                "type": ALLOCATION_CONDITION, "status": "False", "reason": "PoolExhausted",
                "message": ALLOCATED, "lastTransitionTime": DAY}]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn slice(endpoints: &Value) -> Arc<EndpointSlice> {
        slice_of_family("IPv4", endpoints)
    }

    fn slice_of_family(family: &str, endpoints: &Value) -> Arc<EndpointSlice> {
        let object =
            json!({"metadata": {"name": "x"}, "addressType": family, "endpoints": endpoints});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn list(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Vec<String> {
        let pool = "192.0.2.0/24,2001:db8::/64".parse().unwrap();
        let excluded = HashSet::from(["192.0.2.99".parse().unwrap()]);
        let claims = list_claims(services, |_| slices.to_vec(), &pool, &excluded);
        let claims = claims.into_iter().map(|claim| match claim.nodes {
            None => claim.address.to_string(),
            Some(nodes) => format!("{} {nodes:?}", claim.address),
        });
        claims.collect()
    }

    const DAY: &str = "2026-01-02T00:00:00Z";
    /// 192.0.2.50 is one that another load balancer has.
    const ALLOCATED: &str = "192.0.2.10, 192.0.2.99, 198.51.100.1, 2001:db8::10; a problem";

    #[test]
    fn addresses_of_the_pool_are_announced_and_no_others() {
        let both = json!([{"ip": "192.0.2.10", "ipMode": "VIP"}, {"ip": "2001:db8::10"}]);
        let own = json!({"loadBalancerClass": LOAD_BALANCER_CLASS});
        for (spec, points, expect) in [
            (json!({}), both.clone(), &["192.0.2.10", "2001:db8::10"][..]),
            (own, both.clone(), &["192.0.2.10", "2001:db8::10"]),
            (
                json!({"loadBalancerClass": "example.com/x"}),
                both.clone(),
                &[],
            ),
            (json!({"type": "NodePort"}), both.clone(), &[]),
            (json!({}), json!([{"ip": "198.51.100.1"}]), &[]),
            (json!({}), json!([{"ip": "192.0.2.99"}]), &[]),
            (
                json!({}),
                json!([{"ip": "192.0.2.10", "ipMode": "Proxy"}]),
                &[],
            ),
            (json!({}), json!([{"ip": "192.0.2.50"}]), &[]),
            (json!({}), json!([{"hostname": "lb.example.com"}]), &[]),
            (
                json!({}),
                json!([{"ip": "nonsense"}, {"ip": "192.0.2.10"}]),
                &["192.0.2.10"],
            ),
        ] {
            let found = list(&[service("s", DAY, &spec, &points)], &[]);
            assert_eq!(found, expect, "{spec} {points}");
        }
    }

    #[test]
    fn local_policy_limits_the_owners_to_nodes_with_ready_endpoints() {
        let local = json!({"externalTrafficPolicy": "Local"});
        let service = service("s", DAY, &local, &json!([{"ip": "192.0.2.10"}]));
        let endpoint = |node: &str, ready: bool, terminating: bool| {
            json!({"addresses": ["10.0.0.1"], "nodeName": node,
                "conditions": {"ready": ready, "serving": terminating, "terminating": terminating}})
        };
        for (endpoints, expect) in [
            (
                json!([endpoint("a", true, false), endpoint("b", false, false)]),
                r#"{"a"}"#,
            ),
            (
                json!([endpoint("a", true, false), endpoint("b", false, true)]),
                r#"{"a"}"#,
            ),
            (
                json!([endpoint("a", false, false), endpoint("b", false, true)]),
                r#"{"b"}"#,
            ),
            (json!([endpoint("a", false, false)]), "{}"),
            (
                json!([{"addresses": ["10.0.0.1"], "nodeName": "a"}]),
                r#"{"a"}"#,
            ),
        ] {
            let found = list(std::slice::from_ref(&service), &[slice(&endpoints)]);
            assert_eq!(found, [format!("192.0.2.10 {expect}")], "{endpoints}");
        }
    }

    #[test]
    fn endpoints_of_the_other_family_do_not_count() {
        let local = json!({"externalTrafficPolicy": "Local"});
        let points = json!([{"ip": "192.0.2.10"}, {"ip": "2001:db8::10"}]);
        let slices = [("IPv4", "a"), ("IPv6", "b")].map(|(family, node)| {
            slice_of_family(family, &json!([{"addresses": ["x"], "nodeName": node}]))
        });
        let found = list(&[service("s", DAY, &local, &points)], &slices);
        assert_eq!(found, [r#"192.0.2.10 {"a"}"#, r#"2001:db8::10 {"b"}"#]);
    }

    #[test]
    fn address_of_several_services_is_that_of_the_oldest() {
        let local = json!({"externalTrafficPolicy": "Local"});
        let points = json!([{"ip": "192.0.2.10"}]);
        let new = service("a", DAY, &local, &points);
        let old = service("b", "2026-01-01T00:00:00Z", &json!({}), &points);
        assert_eq!(list(&[new, old], &[]), ["192.0.2.10"]);
    }
}
