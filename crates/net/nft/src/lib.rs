//! Packet filtering of the kernel: transactions through the program `nft`, or by netlink if they
//! change elements alone, and the terms in which rules are written; entries of connection tracking.
//!
//! The crates that use it compute the rules. It knows no object of the API.

mod connections;
mod elements;
mod listing;
mod monitor;
mod names;
mod program;
mod table_watch;
mod terms;

pub use connections::{
    ConnectionError, delete_connections, list_connections, list_udp_connections,
};
pub use elements::{Action, ElementChange, ElementData, MAX_ELEMENTS, change_elements, push_field};
pub use listing::{ListedChain, list_chains, list_tables};
pub use monitor::{TableChanges, TableMonitor};
pub use names::chain_name;
pub use program::{
    Commands, Error, apply_commands, check_commands, check_nft, delete_table, first_lines,
    list_objects, run_with_input, transaction_timeout,
};
pub use table_watch::{TableWatch, TableWork};
pub use terms::{Family, Protocol, supported_families};
