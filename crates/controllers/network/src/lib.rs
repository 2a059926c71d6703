//! Controllers of Services: they maintain EndpointSlices and Endpoints.

mod backends;
pub mod endpoints;
pub mod mirror;
mod slices;
pub mod slicing;
pub mod trigger_time;

pub use endpoints::add_endpoints_controller;
pub use mirror::add_endpoint_slice_mirroring;
pub use slicing::add_endpoint_slice_controller;

#[cfg(test)]
mod tests;
