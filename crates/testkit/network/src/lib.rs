//! A node, pods on its bridge and a host outside, each in a network namespace, with servers in
//! them.
//!
//! Tests of packets use it: real bridges, real nftables, and addresses that nothing else has. It
//! needs root and iproute2. A failure in the preparation of a test is a panic, as in its own code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod frames;
mod node_network;
mod traffic;

pub use node_network::{NodeNetwork, OUTSIDE, PODS, run_script};
pub use traffic::{DEADLINE, DROPPED, PORTS, Transport, exchange, exchange_datagrams};
