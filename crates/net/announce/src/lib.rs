//! Announces the addresses of Services of type LoadBalancer on the network of the nodes.
//!
//! Each address has one owner among the nodes of a link. The owner answers ARP requests and
//! neighbour solicitations for it; kube-proxy's rules do the rest. No interface gets the address,
//! so a process that has ended or is stopped announces nothing, and leaves nothing behind.
//!
//! The nodes of a link find each other by heartbeats in Ethernet frames. Each computes the owners
//! from the same input by rendezvous hashing, without an agreement.
//!
//! Decisions are pure: [`Announcer`] receives frames and ticks and returns the frames to send. The
//! modules `links`, `link_monitor`, `packet_socket`, `groups` and `driver` talk to the kernel.

mod agent;
mod announcer;
mod arp;
mod claims;
mod driver;
mod ethernet;
mod groups;
mod heartbeat;
mod link_monitor;
mod links;
mod members;
mod metrics;
mod ndp;
mod output;
mod ownership;
mod packet_socket;

pub use agent::{ANNOUNCED, AgentSettings, IsReady, Stores, index_announced, start_agent};
pub use announcer::Announcer;
pub use claims::{Claim, Desired, list_claims};
pub use driver::{OpenError, run_announcer};
pub use links::{Link, LinkSelection};
pub use metrics::AnnounceMetrics;
pub use output::Output;
