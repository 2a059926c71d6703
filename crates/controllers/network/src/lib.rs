//! Controllers of Services: they maintain EndpointSlices and Endpoints.

mod backends;
pub mod endpoints;
pub mod mirror;
mod slices;
pub mod slicing;

pub use endpoints::endpoints;
pub use mirror::mirroring;
pub use slicing::endpoint_slices;

#[cfg(test)]
mod tests;
