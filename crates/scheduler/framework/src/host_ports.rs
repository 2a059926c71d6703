//! Host ports of pods, and the table of those that are taken on a node.

use k8s_openapi::api::core::v1::PodSpec;
use std::collections::HashMap;

pub(crate) const ANY_ADDRESS: &str = "0.0.0.0";

/// A host port of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address, `0.0.0.0` for all.
    pub address: String,
    /// Protocol.
    pub protocol: String,
    /// Port.
    pub port: i32,
}

impl HostPort {
    /// Returns the host ports of a pod. Sidecars count, other init containers do not.
    pub fn from_pod_spec(spec: &PodSpec) -> Vec<Self> {
        // An init container that restarts always is a sidecar: it holds its port as long as the pod
        // runs. Other init containers have ended before the ports matter.
        let stays = |policy: &Option<String>| policy.as_deref() == Some("Always");
        let sidecars = spec
            .init_containers
            .iter()
            .flatten()
            .filter(|container| stays(&container.restart_policy));
        spec.containers
            .iter()
            .chain(sidecars)
            .flat_map(|container| container.ports.iter().flatten())
            // A port without a host port is inside of the pod's own network and conflicts with
            // nothing.
            .filter_map(|port| {
                let number = port.host_port.filter(|number| *number > 0)?;
                let given = |text: &Option<String>, default: &str| {
                    text.clone()
                        .filter(|text| !text.is_empty())
                        .unwrap_or_else(|| default.to_owned())
                };
                let address = given(&port.host_ip, ANY_ADDRESS);
                Some(Self {
                    address,
                    protocol: given(&port.protocol, "TCP"),
                    port: number,
                })
            })
            .collect()
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        // The wildcard address conflicts with every address of the node, in both directions.
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address
                || self.address == ANY_ADDRESS
                || other.address == ANY_ADDRESS)
    }
}

/// Host ports in use.
#[derive(Clone, Debug, Default)]
pub struct PortTable(HashMap<i32, Vec<HostPort>>);

impl PortTable {
    pub(crate) fn add_port(&mut self, port: &HostPort) {
        self.0.entry(port.port).or_default().push(port.clone());
    }

    pub(crate) fn remove_port(&mut self, port: &HostPort) {
        if let Some(taken) = self.0.get_mut(&port.port) {
            // Only one entry goes: two pods can hold equal ports for a moment, when one of them was
            // bound by another scheduler.
            if let Some(at) = taken.iter().position(|known| known == port) {
                taken.swap_remove(at);
            }
            if taken.is_empty() {
                self.0.remove(&port.port);
            }
        }
    }

    /// Returns whether the port conflicts with one in use.
    pub fn has_conflict(&self, port: &HostPort) -> bool {
        self.0
            .get(&port.port)
            .is_some_and(|taken| taken.iter().any(|known| known.conflicts_with(port)))
    }
}
