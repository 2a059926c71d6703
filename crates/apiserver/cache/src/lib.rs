//! The watch caches: every stored object in memory, at one revision for all resources.
//!
//! One watch on the store feeds all caches (`pump`), so that "up to date to revision R" is one
//! number. A cache holds a persistent map (`resource`): a list takes a snapshot and holds no lock
//! for long. An object's encodings are created at most once and shared by all readers (`entry`).
//! Recent changes are kept in a ring (`history`), from which watches resume and past revisions are
//! rebuilt.
//!
//! The set of served resources (`served`) changes at run time: custom resources are installed and
//! removed (`changes`, `install`), and each change publishes a new set.

mod caches;
mod changes;
mod converted;
mod entry;
mod event;
mod history;
mod install;
mod kind;
mod objects;
mod pump;
mod resource;
mod selection;
mod served;
#[cfg(test)]
mod tests;
mod watcher;

pub use caches::{CacheError, Caches};
pub use changes::InstallError;
pub use converted::{convert_entries, convert_entry};
pub use entry::Entry;
pub use event::{CacheEvent, Delivery, EventType};
pub use kind::StoredKind;
pub use resource::{ResourceCache, Snapshot};
pub use selection::Selection;
pub use served::ServedResources;
pub use watcher::Subscription;
