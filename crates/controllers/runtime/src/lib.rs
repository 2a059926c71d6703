//! The runtime of all controllers.
//!
//! - [`Informers`] keeps one copy of each kind for all controllers.
//! - [`Decide`] is a reconciler as a pure function from caches to [`Action`]s; [`Drive`] is a
//!   reconciler that reads from the API server.
//! - Only the executor writes: it handles events, conflicts and back-off, and holds a key back
//!   until the caches show the writes of the last reconcile.

mod action;
pub mod claim;
pub mod conditions;
mod controller;
mod credentials;
mod deletions;
pub mod discovery;
mod executor;
mod file_watch;
pub mod hash;
mod informers;
pub mod labels;
mod metrics;
mod object;
pub mod pods;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod wake;

pub use action::{
    Action, EventType, Note, Notes, Tolerate, Verb, Write, delete_options, describe_actions,
};
pub use api_semantics::owners::{controller_reference, owner_reference};
pub use controller::{Decide, Drive, Queue, Setup};
pub use credentials::{Account, Accounts};
pub use deletions::Deletions;
pub use executor::{Done, Executor, Pending};
pub use file_watch::watch_files;
pub use informers::{Cache, Index, Informers, Kind, NAMESPACE, View, namespace_of};
pub use metrics::ReconcileMetrics;
pub use object::{
    Meta, Object, Target, normalize_tree, object_reference, semantically_equal, split_key, to_tree,
};
