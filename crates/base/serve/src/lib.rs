//! HTTP/1.1 and HTTP/2 servers over TCP or TLS: accept loop, deadlines of handshake and headers,
//! upgrades, draining.
//!
//! Invariant: a silent peer costs one socket for a bounded time. A full accept queue or a failed
//! handshake never ends the loop. The caller's service handles the requests.

mod accept;
mod first_bytes;
mod gathered;
mod listen;
mod send_limit;
mod transport;

pub use accept::{Options, Peer, serve_http};
pub use first_bytes::FirstBytes;
pub use gathered::Gathered;
pub use listen::{ListenError, bind_listener, write_port_file};
pub use send_limit::limit_sending;
