//! The rules of one Service. Pure: the same Service, slices and node always give the same text.
//!
//! A port has a `service` chain that picks any endpoint of the cluster (traffic policy Cluster), a
//! `local` chain that picks one of this node (policy Local), an `external` chain for connections to
//! its node port, external and load balancer's addresses, a `firewall` chain if sources are
//! restricted, and an `endpoint` chain for each endpoint. The maps of the base chains lead to them.

mod build;
mod chains;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::endpoints::ready_endpoints;
use crate::local::LocalNode;
use crate::model::service_ports;
use net_nft::Family;

use build::Build;
pub use part::Part;

/// The rules of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// For each family.
    pub parts: BTreeMap<Family, Part>,
    /// Addresses and ports that receive UDP packets, with their targets, for conntrack cleanup.
    pub udp: BTreeMap<SocketAddr, BTreeSet<IpAddr>>,
    /// The health check for load balancers.
    pub health: Option<HealthCheck>,
    /// Ports with a traffic policy Local (`internal`, `external`) and endpoints on other nodes
    /// only.
    pub no_local: Vec<(Family, &'static str)>,
}

/// The health check of a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthCheck {
    /// Port.
    pub port: u16,
    /// Ready endpoints on this node, for each family of the Service: addresses, as several ports of
    /// a pod are one endpoint.
    pub local: BTreeMap<Family, BTreeSet<IpAddr>>,
}

/// Computes the rules of a Service.
#[must_use]
pub fn build_service_rules(
    service: &Service,
    slices: &[Arc<EndpointSlice>],
    node: &LocalNode,
) -> ServiceRules {
    let mut out = ServiceRules::default();
    for port in service_ports(service) {
        for family in [Family::V4, Family::V6] {
            if !node.families.contains(&family)
                || !port.cluster_ips.iter().any(|ip| Family::of(*ip) == family)
            {
                continue;
            }
            let all = ready_endpoints(&port, family, slices, &node.name);
            if port.health_check_node_port > 0 {
                let ready = all.iter().filter(|e| e.local && e.ready);
                let check = out.health.get_or_insert_default();
                check.port = port.health_check_node_port;
                let local = check.local.entry(family).or_default();
                local.extend(ready.map(|e| e.address.ip()));
            }
            let build = Build::new(&port, family, node, &all);
            out.no_local
                .extend(build.policies_without_endpoints().map(|p| (family, p)));
            let (built, udp) = build.finish();
            let part = out.parts.entry(family).or_default();
            part.sets.extend(built.sets);
            part.chains.extend(built.chains);
            part.elements.extend(built.elements);
            out.udp.extend(udp);
        }
    }
    out
}

mod part;
#[cfg(test)]
pub(crate) mod tests;
