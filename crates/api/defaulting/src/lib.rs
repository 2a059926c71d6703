//! Defaulting: fills in absent fields of all built-in kinds, on JSON trees.
//!
//! Invariant: pure and idempotent. An explicit null counts as absent. An explicit zero remains,
//! unless upstream treats it as absent (plain strings and integers of its types).
//!
//! The API server defaults an object after decoding and again after mutating admission.

mod admissionregistration;
mod core;
mod dispatch;
mod other_groups;
mod pod;
mod resources;
mod volumes;
mod workloads;

pub use dispatch::default_object;
