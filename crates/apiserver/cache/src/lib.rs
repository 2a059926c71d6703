//! The watch caches: every stored object in memory, at one revision for all resources.
//!
//! One watch on the store feeds all caches (`pump`), so that "up to date to revision R" is one
//! number. The first list fills them on several threads (`fill`). A cache (`resource`) holds a
//! persistent map (`table`): a list takes a snapshot and holds no lock for long. Attributes that
//! clients select by (`usage`) have a persistent index (`index`), which is a part of the snapshot.
//! An object's encodings are created at most once and shared by all readers (`entry`). Recent
//! changes are kept in a ring (`history`), from which watches resume and past revisions are
//! rebuilt. Watchers are indexed by what they select (`watcher_set`).
//!
//! The set of served resources (`served`) changes at run time: custom resources are installed and
//! removed (`changes`, `install`), and each change publishes a new set.

mod attribute;
mod caches;
mod changes;
mod converted;
mod entry;
mod event;
mod fill;
mod history;
mod index;
mod install;
mod kept_tree;
mod kind;
mod object_bytes;
mod objects;
mod pump;
mod resource;
mod retry;
mod selection;
mod served;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod watcher;
mod watcher_set;

pub use caches::{CacheError, Caches};
pub use changes::InstallError;
pub use converted::{convert_entries, convert_entry};
pub use entry::Entry;
pub use event::{CacheEvent, Delivery, EventType, FrameFormat, SharedFrames};
pub use kind::StoredKind;
pub use resource::ResourceCache;
pub use selection::Selection;
pub use served::ServedResources;
pub use snapshot::Snapshot;
pub use watcher::Subscription;
