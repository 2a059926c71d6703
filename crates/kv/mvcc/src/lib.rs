//! Multi-version key-value semantics of the etcd v3 API: revisions, ranges, transactions, compaction, watches.
//!
//! The key index is in memory; one record a revision is in the engine. Writes reach the engine after they are visible:
//! the newest revisions are in a shared history, from which watchers and reads are served until then.
//!
//! Invariant: what is applied depends on the commands only, never on time, engine or member, so that all members hold
//! the same history. A revision's events are seen together or not at all.

mod compact;
mod error;
mod hash;
mod history;
mod index;
mod range;
mod read_txn;
mod revision;
mod span;
mod store;
mod touched;
mod txn;
mod view;
mod watch;
mod writer;

#[cfg(test)]
mod model;

pub use compact::Pin;
pub use error::MvccError;
pub use history::{Event, RevisionEvents};
pub use revision::Mark;
pub use span::Span;
pub use store::{Counts, Defer, Records, Store, StoreSizes};
pub use txn::{Limits, check_put, check_request};
pub use watch::{Hub, HubHandle, HubSizes, Inbound, WatchFilter, Watcher, WatcherKey};
pub use writer::{LeaseBook, NoLeases, Writer};
