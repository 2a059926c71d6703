//! Replication: openraft, with what it needs around it.
//!
//! - Many waiting commands become one entry, so one `fdatasync` serves them all; openraft 0.9 waits for each append.
//! - Elections are started here, after a vote that changes nothing (pre-vote): a member that comes back deposes nobody.
//! - Linearizable reads cost no log write: the leader holds a lease that its followers' answers renew.
//! - A snapshot is a picture of the live state, taken when a follower needs one.
//!
//! openraft's types do not leave this crate.

mod alone;
mod clock;
mod codec;
mod elector;
mod fetch;
mod forward;
mod gather;
mod lease;
mod log_store;
mod network;
mod node;
mod peer;
mod promise;
mod propose;
mod server;
mod shared;
mod state;
mod traffic;
mod transfer;
mod transport;
mod trust;
mod types;

#[allow(missing_docs, clippy::all, clippy::unwrap_used, rust_2018_idioms)]
mod pb {
    tonic::include_proto!("kvstore.peer.v1");
}

pub use alone::{Takeover, alone};
pub use clock::Clock;
pub use codec::{commands, origin};
pub use log_store::SHORT_SYNC;
pub use node::{Config, Node, NodeError, Status};
pub use peer::{Answerer, Directory, PeerAddress, PeerHealth};
pub use server::PeerService;
pub use state::{Rows, StateMachine};
pub use traffic::{Histogram, Metered, Traffic};
pub use transport::{Dial, PeerTls, TransportError, Wire, sender};
pub use trust::{Gate, PeerTrust};
