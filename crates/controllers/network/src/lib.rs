//! Controllers of Services: they maintain EndpointSlices, Endpoints, ServiceCIDRs and the addresses
//! of load balancers.

mod backends;
pub mod endpoints;
pub mod load_balancers;
pub mod mirror;
pub mod service_cidrs;
mod slices;
pub mod slicing;
pub mod trigger_time;

pub use endpoints::add_endpoints_controller;
pub use load_balancers::add_load_balancer_controller;
pub use mirror::add_endpoint_slice_mirroring;
pub use service_cidrs::add_service_cidr_controller;
pub use slicing::add_endpoint_slice_controller;

#[cfg(test)]
mod tests;
