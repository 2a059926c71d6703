//! The agent of a node's pod network: from the Node objects it computes the plugin's configuration,
//! routes to the pods of other nodes, and rules, and applies the difference.
//!
//! With the backend `wireguard`, packets to pods of other nodes are encrypted or dropped. Each
//! agent publishes its node's public key as an annotation of the Node.
//!
//! **Invariant:** a node writes parts of its own object, so each value of another node is checked
//! before it is used (`peers.rs`). What is applied outlives the process.

mod agent;
mod conflist;
mod encryption;
mod firewall;
mod identity;
mod kernel;
mod peers;
mod plan;
mod publisher;
mod settings;
mod sync;
mod wireguard;

pub use agent::{remove_network, run_agent};
pub use identity::IdentityError;
pub use kernel::KernelError;
pub use peers::KEY_ANNOTATION;
pub use settings::{Backend, NodeSettings};
pub use sync::{NodeNetwork, SyncError};
