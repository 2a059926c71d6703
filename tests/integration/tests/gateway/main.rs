//! The gateway with the rights of its manifest, in front of servers in the test's process; requests
//! are sent by curl.

#![allow(clippy::unwrap_used, missing_docs)]

mod abuse;
mod backends;
mod framing;
mod gateway_api;
mod http2;
mod ingress;
mod limits;
mod logs;
mod own_addresses;
mod paths;
mod setting;
mod tls;
mod tls_policies;
mod upgrades;
