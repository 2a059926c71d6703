//! nftables: transactions through the program `nft`, and the terms in which rules are written.
//!
//! What the rules say belongs to the crates that compute them. This crate has no Kubernetes word.

mod names;
mod program;
mod terms;

pub use names::chain_name;
pub use program::{Commands, Error, apply_commands, check_nft, delete_table, list_objects};
pub use terms::{Family, Protocol, supported_families};
