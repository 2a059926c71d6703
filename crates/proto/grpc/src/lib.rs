//! The calls of generated clients and servers. tonic's code for a call is generic over its
//! messages, and would be compiled again for each method. Here it sees bytes, and only decoding and
//! encoding are compiled for each message.

mod client;
mod codec;
mod server;
mod stream;

pub use client::{GrpcClient, MethodName};
pub use server::{
    CallFuture, MessageLimits, reject_unknown, respond_client_streaming, respond_server_streaming,
    respond_streaming, respond_unary,
};
pub use stream::MessageStream;
