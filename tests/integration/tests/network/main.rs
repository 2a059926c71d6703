//! Rules in a real kernel that follow objects of a control plane. The node is a network namespace, in
//! which the control plane and the component run; needs root, nftables and iproute2.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod load_balancers;
mod network_policies;
mod services;
