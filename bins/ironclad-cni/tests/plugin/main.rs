//! Tests the plugin in a real kernel: a node, pods and a host outside, each in a network namespace.
//!
//! Skipped, with the reason printed, if the caller is not root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod agent;
mod attachments;
mod bandwidth;
mod host_ports;
mod nodes;
mod specification;
mod wireguard;
mod world;
