//! etcd's gRPC services over one member: context, identity of callers, checks, execution, and the
//! peer RPCs beside replication.
//!
//! Invariant: each RPC has one implementation, and permissions are checked before a request and
//! again after every wait.

mod call_end;
mod context;
mod data_hash;
mod dispatch;
mod histogram;
mod jwt;
mod leader_leases;
mod leader_requests;
mod membership;
mod method;
mod metrics;
mod metrics_page;
mod passwords;
mod peer_handler;
mod peer_rpc;
mod request_summary;
mod required_leader;
mod services;
mod slow_request;
mod stream_caller;
mod tokens;
mod unary;

pub use context::{ServerContext, ServerLimits, common_name};
pub use data_hash::{HashResult, hash_locally};
pub use dispatch::grpc_request;
pub use jwt::Jwt;
pub use metrics::StoreMetrics;
pub use metrics_page::metrics_page;
pub use passwords::Passwords;
pub use peer_handler::PeerRequestHandler;
pub use peer_rpc::{ClusterInfo, MEMBERS, is_responding, request_hash};
pub use services::{decoding_limit, grpc_routes};
pub use slow_request::SlowLimits;
