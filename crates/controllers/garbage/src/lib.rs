//! Garbage collection: deletes objects whose last owner was deleted.
//!
//! A graph of owners and dependents is fed by metadata watches of every kind that can be deleted.
//! The graph only selects candidates: before a deletion the object and its owners are read from the
//! API server, and the deletion carries their UID and version. Orphaning removes the owner
//! reference from all dependents before the owner's finalizer is removed.

mod absent;
mod collect;
mod collector;
mod graph;
mod state;
mod watch;

pub use absent::RecentlyAbsent;
pub use collector::add_garbage_collector;
