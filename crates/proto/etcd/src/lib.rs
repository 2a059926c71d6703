//! The etcd v3 API (3.6): messages, clients and servers, generated from `/proto/etcd`.
//!
//! `bytes` fields are [`bytes::Bytes`], so a decoded request shares the buffer that it was decoded
//! from.
#![allow(missing_docs, clippy::all, rust_2018_idioms)]

pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}
pub mod authpb {
    tonic::include_proto!("authpb");
}
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
