//! Packet filtering of the kernel: transactions through the program `nft`, and the terms in which rules are written; entries of
//! connection tracking.
//!
//! What the rules say belongs to the crates that compute them. This crate has no Kubernetes word.

mod connections;
mod names;
mod program;
mod terms;

pub use connections::delete_connections;
pub use names::chain_name;
pub use program::{Commands, Error, apply_commands, check_nft, delete_table, list_objects};
pub use terms::{Family, Protocol, supported_families};
