//! The API's rules, written down a second time and without sets, indexes or text: the reference
//! that the rules are compared with.

use std::net::IpAddr;

use api_semantics::selectors::labels_match;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use net_nft::Protocol;

use super::{Cluster, Packet, PolicyPod};

/// Returns whether a packet may pass node n1.
pub(super) fn may_pass(cluster: &Cluster, packet: Packet) -> bool {
    if packet.source == packet.destination {
        return true;
    }
    let (source, destination) = (
        find_pod(cluster, packet.source),
        find_pod(cluster, packet.destination),
    );
    let leaves = source
        .filter(|pod| pod.is_local)
        .is_none_or(|pod| is_allowed(cluster, pod, false, packet));
    let arrives = destination
        .filter(|pod| pod.is_local)
        .is_none_or(|pod| is_allowed(cluster, pod, true, packet));
    leaves && arrives
}

fn find_pod(cluster: &Cluster, address: IpAddr) -> Option<&PolicyPod> {
    cluster
        .pods
        .values()
        .find(|pod| pod.addresses.contains(&address))
}

fn is_allowed(cluster: &Cluster, pod: &PolicyPod, is_ingress: bool, packet: Packet) -> bool {
    let mut is_isolated = false;
    for policy in cluster.policies.values() {
        let namespace = policy.metadata.namespace.as_deref().unwrap();
        let spec = policy.spec.as_ref().unwrap();
        let selector = spec.pod_selector.clone().unwrap_or_default();
        let default = if spec.egress.as_ref().is_some_and(|list| !list.is_empty()) {
            vec!["Ingress".to_owned(), "Egress".to_owned()]
        } else {
            vec!["Ingress".to_owned()]
        };
        let types = spec.policy_types.clone().unwrap_or(default);
        let kind = if is_ingress { "Ingress" } else { "Egress" };
        if namespace != pod.namespace
            || !labels_match(Some(&selector), Some(&pod.labels))
            || !types.iter().any(|listed| listed == kind)
        {
            continue;
        }
        is_isolated = true;
        let rules: Vec<_> = if is_ingress {
            let rules = spec.ingress.clone().unwrap_or_default();
            rules.into_iter().map(|r| (r.from, r.ports)).collect()
        } else {
            let rules = spec.egress.clone().unwrap_or_default();
            rules.into_iter().map(|r| (r.to, r.ports)).collect()
        };
        let peer = if is_ingress {
            packet.source
        } else {
            packet.destination
        };
        for (peers, ports) in rules {
            let peers = peers.unwrap_or_default();
            let ports = ports.unwrap_or_default();
            let peer_matches = peers.is_empty()
                || peers
                    .iter()
                    .any(|rule| is_peer(cluster, namespace, rule, peer));
            let port_matches =
                ports.is_empty() || ports.iter().any(|port| is_port(cluster, port, packet));
            if peer_matches && port_matches {
                return true;
            }
        }
    }
    !is_isolated
}

fn is_peer(cluster: &Cluster, namespace: &str, peer: &NetworkPolicyPeer, address: IpAddr) -> bool {
    if let Some(block) = &peer.ip_block {
        let contains = |text: &String| text.parse::<IpNet>().unwrap().contains(&address);
        return contains(&block.cidr) && !block.except.iter().flatten().any(contains);
    }
    let Some(pod) = find_pod(cluster, address) else {
        return false;
    };
    let in_namespace = match &peer.namespace_selector {
        None => pod.namespace == namespace,
        Some(selector) => cluster
            .namespaces
            .get(&pod.namespace)
            .is_some_and(|labels| labels_match(Some(selector), Some(labels))),
    };
    let pods = peer.pod_selector.clone().unwrap_or_default();
    in_namespace && labels_match(Some(&pods), Some(&pod.labels))
}

fn is_port(cluster: &Cluster, port: &NetworkPolicyPort, packet: Packet) -> bool {
    if Protocol::parse(port.protocol.as_deref()) != Some(packet.protocol) {
        return false;
    }
    match (&port.port, port.end_port) {
        (None, _) => true,
        (Some(IntOrString::Int(first)), last) => {
            (*first..=last.unwrap_or(*first)).contains(&i32::from(packet.port))
        }
        (Some(IntOrString::String(name)), _) => {
            find_pod(cluster, packet.destination).is_some_and(|pod| {
                pod.ports.iter().any(|port| {
                    port.name == *name
                        && port.protocol == packet.protocol
                        && port.number == packet.port
                })
            })
        }
    }
}
