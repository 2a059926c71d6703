//! NetworkPolicies in the kernel: nftables rules that drop forwarded packets which no policy
//! allows.
//!
//! [`PolicyState`] is pure: it gets changes of pods, namespaces and policies, and returns the
//! difference of the rules as one `nft` transaction of the size of the change. [`run_agent`] feeds
//! it from informers and applies what it returns. Rules outlive the process, so pods stay isolated
//! while it is restarted.
//!
//! Invariant: an address, port or selector that can't be parsed allows nothing, and neither does a
//! policy beyond a limit. Packets of addresses that the agent does not know pass only while the
//! node has no isolated pod.

mod agent;
mod base_chains;
mod bridge;
mod closing;
mod connections;
mod direction;
mod dirty;
mod guard;
mod limits;
mod local_pods;
mod metrics;
mod names;
mod pod;
mod pod_sets;
mod policy;
mod rules;
mod selector;
mod state;
mod sync;
mod tables;

pub use agent::{AgentSettings, close_new_tables, run_agent};
pub use base_chains::{GuardedNetwork, TABLE, delete_tables};
pub use bridge::BridgeError;
pub use closing::ClosingReason;
pub use connections::find_stale_connections;
pub use pod::{NamedPort, PolicyPod};
pub use policy::Policy;
pub use state::PolicyState;
