//! The etcd v3 API (3.6): messages, clients and servers, generated from `/proto/etcd` by
//! `tests/layers/tests/generated`.
//!
//! `bytes` fields are [`bytes::Bytes`], so a decoded request shares the buffer that it was decoded
//! from.
#![allow(missing_docs, clippy::all, rust_2018_idioms)]

pub use proto_grpc::MessageStream;

pub mod mvccpb {
    include!("generated/mvccpb.rs");
}
pub mod authpb {
    include!("generated/authpb.rs");
}
pub mod etcdserverpb {
    include!("generated/etcdserverpb.rs");
}
pub mod v3lockpb {
    include!("generated/v3lockpb.rs");
}
pub mod v3electionpb {
    include!("generated/v3electionpb.rs");
}
