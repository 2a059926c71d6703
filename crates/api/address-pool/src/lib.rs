//! The pool of addresses for Services of type LoadBalancer: the value of
//! `--load-balancer-pool`.
//!
//! The controller that allocates addresses and the nodes that announce them must agree about the
//! pool: a node announces no address outside of it, whatever the status of a Service has.

mod parse;
mod pool;

pub use parse::Error;
pub use pool::{AddressPool, AddressRange};

/// Value of `spec.loadBalancerClass` that selects the pool. Services without a class use it, too.
pub const LOAD_BALANCER_CLASS: &str = "ironclad/address-pool";
