//! The agent of a node's pod network: from the Node objects it computes the plugin's configuration,
//! routes to the pods of other nodes, and rules, and applies the difference.
//!
//! **Invariant:** a node writes parts of its own object, so each value of another node is checked
//! before it is used (`peers.rs`). What is applied outlives the process.

mod agent;
mod conflist;
mod firewall;
mod kernel;
mod peers;
mod plan;
mod settings;
mod sync;

pub use agent::{remove_network, run_agent};
pub use kernel::KernelError;
pub use settings::{Backend, NodeSettings};
pub use sync::{NodeNetwork, SyncError};
