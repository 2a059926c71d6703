//! A member as a process: start and stop, listeners, HTTP pages, background jobs.
//!
//! Invariant: starts everything in the order of dependencies and stops it in reverse order. Each
//! background job belongs to a task group, whose failure stops the member.

mod auto_defrag;
mod blocking_engine;
mod bootstrap;
mod corruption;
mod expiry;
mod health;
mod http_pages;
mod listen;
mod member;
mod peer_tls;
mod quota;
mod raft_state_machine;
mod rebuild;
mod start;
mod tasks;

pub use kv_config::{Flags, UPSTREAM_FLAGS};
pub use member::{ClientService, Member, OnRemoved, Tuning};
pub use start::run;
