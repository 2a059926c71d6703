//! The store as a server: flags, start-up, the etcd v3 services over gRPC, and the HTTP pages beside them.

mod accept;
mod alone;
mod auto_tls;
mod bootstrap;
mod check;
mod core;
mod corked;
mod corruption;
mod describe;
mod expiry;
mod glue;
mod grpc;
mod health;
mod http_pages;
mod intake;
mod jwt;
mod listen;
mod member;
mod meters;
mod offline;
mod peer_tls;
mod questions;
mod quota;
mod rebuild;
mod settings;
mod slow;
mod space;
mod start;
mod streams;
mod tasks;
mod tolerant;
mod unary;
mod urls;

pub use member::{ClientService, Member, OnRemoved, Tuning};
pub use settings::{Flags, IGNORED_FLAGS};
pub use start::run;
