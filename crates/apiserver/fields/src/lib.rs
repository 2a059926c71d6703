//! Field ownership: `metadata.managedFields`, and server-side apply on top of it.
//!
//! A set of field paths (`set`) holds the fields of one manager. Comparing two objects by their
//! schema (`compare`) gives the paths that a write changed; they become the writer's alone
//! (`track`). Apply (`apply`) merges an intent into the live object, rejects changes to fields of
//! other managers, and removes fields that the manager no longer applies.
//!
//! Invariant: pure; the same objects and managers give the same result. The semantics are those of
//! upstream's structured-merge-diff, with the list types of the API schema. Owners of other
//! versions are compared in their version (`changes`); the caller converts (`versions`).

mod apply;
mod changes;
mod compare;
mod last_applied;
mod managers;
mod mutation;
mod path;
mod prune;
mod reconcile;
mod scale;
mod set;
mod shape;
mod track;
mod versions;
mod writer;

pub use apply::{ApplyError, ApplyOutcome, Conflict, apply_intent};
pub use managers::check_managed_fields;
pub use mutation::{MergeError, check_elements_of, merge_object};
pub use scale::{ReplicasPaths, set_object_owners, set_scale_owners};
pub use set::FieldSet;
pub use track::track_update;
pub use versions::{ConversionRequest, Versions};
pub use writer::Writer;
