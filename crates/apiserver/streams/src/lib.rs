//! Translates WebSockets of clients to SPDY of kubelets: current kubectl uses the former, every
//! kubelet supports the latter.
//!
//! `v5.channel.k8s.io` (KEP-4006) carries the streams of exec and attach in messages whose first
//! byte is the channel, and can close a channel; `SPDY/3.1+portforward.k8s.io` carries the bytes of
//! a SPDY connection. Invariant: data that one side sent before it closed reaches the other side
//! before the close does. Memory use is one message of the client and one buffer of the kubelet; a
//! slow reader slows down the other side.
//!
//! Rejected: WebSockets to the kubelet as well. Before v5, which runtimes lack, they can't close
//! standard input.

mod protocol;
mod relay;
mod spdy;

pub use protocol::{Protocol, Reader, accept_upgrade, choose_protocol, choose_reader};
pub use relay::{Streams, relay_streams, send_stream};
