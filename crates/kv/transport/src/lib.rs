//! Transport of the client ports: accept loop, request limits, and a gRPC path
//! written by hand for the calls that come by the thousand.
//!
//! Invariant: knows no RPC and no state of a member. What a call does is the caller's.

mod accept;
mod calls;
mod connection;
mod grpc_framing;
mod grpc_stream;
mod grpc_unary;
mod legacy_authority;
mod memory_budget;
mod request_body;
mod request_limits;
mod sockets;
#[cfg(test)]
mod testing;

pub use accept::{ConnectionOptions, Listener, serve_listener};
pub use connection::Connection;
pub use grpc_framing::{
    PREFIX, decode_message, frame_into, frame_message, is_compressed, is_grpc, put_prefix,
};
pub use grpc_stream::{Requests, ResponseSender, streaming_response};
pub use grpc_unary::{receive_message, unary_response};
pub use memory_budget::Budget;
pub use request_body::RequestBody;
pub use request_limits::{ClientTraffic, LimitedBody, MemoryReservation, TOO_MANY_REQUESTS};
pub use sockets::{Socket, socket_url, split_sockets};
