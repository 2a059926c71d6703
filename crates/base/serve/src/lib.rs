//! HTTP/1.1 and HTTP/2 servers over TCP or TLS: accept loop, deadlines of handshake and headers,
//! upgrades, draining.
//!
//! Invariant: a silent peer costs one socket for a bounded time, apart from responses of HTTP/1
//! without a deadline of their service, and upgraded streams. A full accept queue or a failed
//! handshake never ends the loop. The caller's service handles the requests.

mod accept;
mod activity;
mod coalescing;
mod fair_places;
mod first_bytes;
mod gathered;
mod listen;
mod send_limit;
mod transport;
mod unread_limit;
mod write_coalescer;

pub use accept::{Http2Buffers, Options, Peer, ServerShare, serve_http};
pub use activity::ConnectionHandle;
pub use coalescing::{
    CoalescingConnection, ConnectionEnd, DrivenConnection, OpenRequests, drive_coalesced,
};
pub use fair_places::{FairPlaces, Place, identify_client};
pub use first_bytes::FirstBytes;
pub use gathered::Gathered;
pub use listen::{ListenError, bind_listener, write_port_file};
pub use send_limit::limit_sending;
pub use write_coalescer::WriteCoalescer;
