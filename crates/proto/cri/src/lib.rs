//! gRPC code of the container runtime interface (CRI v1), generated at build time from
//! `/proto/cri`.

#![allow(
    missing_docs,
    clippy::all,
    rust_2018_idioms,
    clippy::unwrap_used,
    clippy::expect_used
)]

/// CRI v1: messages, clients and servers of the runtime and image services.
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// containerd's event stream.
pub mod containerd_events {
    tonic::include_proto!("containerd.services.events.v1");
}
