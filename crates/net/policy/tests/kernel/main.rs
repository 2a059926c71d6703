//! Tests the generated rules in a real kernel: a node, pods on its bridge and a host outside, each
//! in a network namespace.
//!
//! Skipped, with the reason printed, if the caller is not root.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod rules;
mod world;
