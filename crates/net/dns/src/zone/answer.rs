//! The view that names are resolved over, and the answer.

use hickory_proto::rr::{Name, Record};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::net::IpAddr;
use std::sync::Arc;

/// TTL of records in seconds.
pub const TTL: u32 = 5;

/// Read access to the objects behind the zone.
pub trait View: Send + Sync {
    /// Returns a Service.
    fn find_service(&self, namespace: &str, name: &str) -> Option<Arc<Service>>;
    /// Returns the slices of a Service.
    fn list_slices(&self, namespace: &str, name: &str) -> Vec<Arc<EndpointSlice>>;
    /// Returns whether a namespace exists.
    fn has_namespace(&self, name: &str) -> bool;
    /// Returns the Service with a cluster IP.
    fn find_service_by_address(&self, address: IpAddr) -> Option<Arc<Service>>;
    /// Returns the slices with an endpoint address.
    fn list_slices_by_address(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>>;
    /// Returns the namespace of the pod with an address of its own; None if pods are not known.
    fn namespace_of_pod(&self, address: IpAddr) -> Option<String>;
    /// Returns whether a node has an address; false if nodes are not known.
    fn has_node_address(&self, address: IpAddr) -> bool;
    /// Returns whether the informers have synced.
    fn has_synced(&self) -> bool;
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Records for the answer section, and additional ones.
    Records {
        /// Records of the requested name.
        answers: Vec<Record>,
        /// Addresses of targets.
        additional: Vec<Record>,
    },
    /// The name exists, but not with this type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// An alias to a name outside of the zone, which must be resolved upstream.
    Alias {
        /// The alias itself.
        record: Record,
        /// Target of the alias.
        target: Name,
    },
    /// The name is not in this zone.
    Elsewhere,
}
