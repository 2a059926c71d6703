//! The cluster's name server: names of Services, endpoints and pods from informers, everything else from upstream.
//!
//! The specification is Kubernetes' DNS-Based Service Discovery 1.1.0. What a name means is computed by a pure function
//! ([`zone::resolve`]) over a read-only view of the cluster; sockets and forwarding are around it. There is no cache of
//! the cluster's own names: the informers' stores are one, and an answer is never older than they are.

mod clients;
mod forward;
mod health;
mod reply;
mod run;
mod server;
mod view;
pub mod zone;

pub use forward::{Upstreams, upstreams_of};
pub use run::{Settings, drop_privileges, run};
pub use view::Informed;
