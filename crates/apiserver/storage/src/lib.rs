//! The API server's client of the store: etcd v3 with optimistic transactions, one watch, and
//! leases.
//!
//! Invariants: a revision is always the store's; every write compares a mod revision; this crate
//! knows keys and bytes, not Kubernetes objects.
//!
//! Rejected: retrying a write whose outcome is unknown. The caller gets an error and reads again.

mod addresses;
mod client;
mod compact;
mod config;
mod connector;
mod error;
mod latencies;
mod lease;
mod members;
mod progress;
mod read_index;
mod renewal;
#[cfg(test)]
mod tests;
mod value;
mod wait;
mod watch;

pub use client::Store;
pub use compact::compact_regularly;
pub use config::{ConfigError, StoreConfig};
pub use error::StoreError;
pub use latencies::LatencyMetrics;
pub use value::{Page, StoredValue};
pub use watch::{Change, Feed, ProgressRequests, WatchItem};
