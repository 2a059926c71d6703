//! The watch caches: every stored object in memory, at one revision for all resources.
//!
//! One watch on the store feeds all caches (`pump`), so that "up to date to revision R" is one
//! number. A cache holds a persistent map (`resource`): a list takes a snapshot and holds no lock
//! for long. An object's encodings are created at most once and shared by all readers (`entry`).
//! Recent changes are kept in a ring (`history`), from which watches resume and past revisions are
//! rebuilt.

mod caches;
mod entry;
mod event;
mod history;
mod kind;
mod objects;
mod pump;
mod resource;
mod selection;
#[cfg(test)]
mod tests;
mod watcher;

pub use caches::{CacheError, Caches};
pub use entry::Entry;
pub use event::{CacheEvent, EventType};
pub use kind::StoredKind;
pub use resource::{ResourceCache, Snapshot};
pub use selection::Selection;
pub use watcher::{Delivery, Subscription};
