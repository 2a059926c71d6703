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

/// Type of the condition of Services with addresses of the pool. Its message has the addresses.
pub const ALLOCATION_CONDITION: &str = "ironclad/AddressAllocated";

/// Returns the addresses in the message of the condition [`ALLOCATION_CONDITION`].
pub fn parse_allocation(message: &str) -> impl Iterator<Item = std::net::IpAddr> {
    let words = message.split([' ', ',', ';']);
    words.filter_map(|word| word.parse().ok())
}
