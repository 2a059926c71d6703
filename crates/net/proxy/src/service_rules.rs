//! The rules of one Service. Pure: the same Service, slices and node always give the same rules.
//!
//! They are a description, which the back ends (`nftables/render.rs`, `iptables/render.rs`) put
//! into their words. All decisions are here.

mod build;
mod port_rules;

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
pub use port_rules::{External, Front, FrontAddress, PortRules, Refusal, Target};

/// The rules of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// Rules of each port, in each family.
    pub ports: Vec<PortRules>,
    /// Addresses and ports that receive UDP packets, with their targets, for conntrack cleanup.
    pub udp: BTreeMap<SocketAddr, BTreeSet<IpAddr>>,
    /// The health check for load balancers.
    pub health: Option<HealthCheck>,
    /// Ports with a traffic policy Local (`internal`, `external`) and endpoints on other nodes
    /// only.
    pub no_local: Vec<(Family, &'static str)>,
}

impl ServiceRules {
    /// Gives endpoints the places that they had before, see [`PortRules::keep_order`].
    pub(crate) fn keep_order(&mut self, before: &Self) {
        for port in &mut self.ports {
            let mut former = before.ports.iter();
            if let Some(former) = former.find(|former| former.is_same_port(port)) {
                port.keep_order(former);
            }
        }
    }

    /// Returns whether other rules do the same with packets of a family.
    pub(crate) fn are_same_in(&self, other: &Self, family: Family) -> bool {
        let own = |rules: &Self| rules.health.as_ref().map(|health| health.port);
        let ports = self.ports.iter().filter(|port| port.family == family);
        let others = other.ports.iter().filter(|port| port.family == family);
        own(self) == own(other) && ports.eq(others)
    }
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
            out.ports.push(built);
            out.udp.extend(udp);
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests;
