//! Multi-version key-value semantics of the etcd v3 API: revisions, ranges, transactions,
//! compaction, watches.
//!
//! The key index is in memory, and the engine has one record per revision. A write becomes visible
//! before it reaches the engine. Until then a shared history of the newest revisions serves
//! watchers and reads.
//!
//! Invariant: the applied state depends on the commands only, never on time, engine or member, so
//! that all members have the same history. The events of a revision become visible together.

mod compact;
mod error;
mod hash;
mod history;
mod index;
mod range;
mod read_txn;
mod revision;
mod span;
mod state;
mod store;
mod touched;
mod txn;
mod view;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

pub use compact::Pin;
pub use error::MvccError;
pub use history::{Event, RevisionEvents};
pub use revision::Mark;
pub use span::Span;
pub use store::{Counts, Defer, Records, Store, StoreSizes};
pub use txn::{Limits, check_put, check_request};
pub use watch::{Hub, HubHandle, HubMessage, HubSizes, WatchFilter, Watcher, WatcherKey};
pub use writer::{LeaseBook, NoLeases, Writer};
