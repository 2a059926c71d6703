//! gRPC code of the container runtime interface (CRI v1), generated from `/proto/cri` by
//! `tests/layers/tests/generated`.

#![allow(
    missing_docs,
    clippy::all,
    rust_2018_idioms,
    clippy::unwrap_used,
    clippy::expect_used
)]

pub use proto_grpc::MessageStream;

/// CRI v1: messages, clients and servers of the runtime and image services.
pub mod v1 {
    include!("generated/runtime.v1.rs");
}

/// containerd's event stream.
pub mod containerd_events {
    include!("generated/containerd.services.events.v1.rs");
}
