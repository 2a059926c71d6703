//! WebSockets of clients to SPDY of kubelets: what today's kubectl speaks on one side, what every kubelet speaks on the
//! other.
//!
//! `v5.channel.k8s.io` (KEP-4006) carries the streams of exec and attach in messages whose first byte names the channel,
//! and can end a channel; `SPDY/3.1+portforward.k8s.io` carries the bytes of a SPDY connection as they are.
//! Invariant: what one side sent before it ended reaches the other side before the end does. Memory is one message of the
//! client and one buffer of the kubelet; who reads slowly slows down the other side.
//!
//! Rejected: WebSockets to the kubelet as well. They have no way to end standard input before v5, which runtimes lack.

mod protocol;
mod relay;
mod spdy;

pub use protocol::{Protocol, Reader, accept, choose, choose_reader};
pub use relay::{Streams, relay, send};
