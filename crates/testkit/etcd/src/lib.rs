//! An etcd in memory, for unit tests of its clients: ranges, transactions, watches, leases and
//! compaction, with faults that a test injects.
//!
//! It has one member, keeps every revision until it is compacted, and does not expire leases.

mod fake;
mod maintenance;
mod services;
mod shared;
mod state;

pub use fake::FakeEtcd;
