//! Serving HTTP/1.1 and HTTP/2 over TCP or TLS: accept loop, handshake and header deadlines, upgrades, draining.
//!
//! Invariant: a peer that says nothing costs one socket for a bounded time; a full accept queue or a failed handshake
//! never ends the loop. What the requests mean is the caller's service.

mod accept;
mod first_bytes;
mod gathered;
mod listen;

pub use accept::{Options, Peer, serve};
pub use first_bytes::FirstBytes;
pub use gathered::Gathered;
pub use listen::{ListenError, bind, write_port_file};
