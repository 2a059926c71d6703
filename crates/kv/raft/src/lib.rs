//! Replication: openraft 0.9 and the parts that this store adds to it.
//!
//! - Group commit: proposals that wait are combined into one entry, so that one `fdatasync` serves
//!   all of them. openraft 0.9 waits for each append.
//! - PreVote: elections are started by this crate, so that a member that rejoins can't depose a
//!   leader.
//! - Linearizable reads write no log entry: followers' responses renew a leader lease.
//! - Snapshots are read from the live state when a follower needs one.
//!
//! Invariant: openraft's types do not leave this crate.

mod clock;
mod codec;
mod config;
mod election_timeout;
mod elector;
mod fetch;
mod force_new_cluster;
mod forward;
mod leader_calls;
mod lease;
mod log_store;
mod network;
mod node;
mod peer;
mod propose;
mod server;
mod shared;
mod state;
mod stop_cause;
mod traffic;
mod transfer;
mod transport;
mod trust;
mod types;
mod vote_guard;

#[allow(missing_docs, clippy::all, clippy::unwrap_used, rust_2018_idioms)]
mod pb {
    include!("generated/kvstore.peer.v1.rs");
}

pub use clock::Clock;
pub use codec::{decode_commands, make_origin};
pub use config::{Config, Dial, PeerTls, Wire};
pub use force_new_cluster::{NewClusterRecords, force_new_cluster};
pub use log_store::SHORT_SYNC;
pub use node::{NodeError, NodeInputs, RaftNode, Status};
pub use peer::{Directory, PeerAddress, PeerHandler, PeerHealth};
pub use server::PeerService;
pub use state::{SnapshotRows, StateMachine};
pub use traffic::{MeteredBody, Traffic};
pub use transport::{ReplaceOutcome, TransportError, claimed_sender};
pub use trust::{PeerInterceptor, PeerTrust};
