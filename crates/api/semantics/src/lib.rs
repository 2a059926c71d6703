//! Rules of Kubernetes that several components apply: one implementation and one table of cases
//! for each.
//!
//! The rules read typed objects. A component that holds a JSON tree converts the fields that the
//! rules read with [`tree`]; the rest of the object is not decoded.
//!
//! Invariant: all functions are pure, and each rule does what upstream's shared helper does.
//! `cases/` holds the tables as JSON, so that a component's tests can run its wrapper over the
//! table of the rule ([`cases`]).

pub mod addresses;
pub mod cases;
pub mod cron;
pub mod devices;
pub mod endpoints;
pub mod nodes;
pub mod owners;
pub mod pods;
pub mod qos;
pub mod quantities;
pub mod quota;
pub mod resources;
pub mod selectors;
pub mod service_ranges;
pub mod tolerations;
pub mod tree;
