//! The controller of ResourceClaims: makes the claims that pods ask for by template, ends the use
//! of claims by pods that have ended, and frees the devices of unused claims.
//!
//! The scheduler allocates devices and reserves claims for pods; this crate does the opposite.

pub mod claim;
mod controller;
pub mod pod;

pub use controller::add_resource_claim_controller;
