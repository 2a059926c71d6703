//! Field ownership: `metadata.managedFields`, and server-side apply on top of it.
//!
//! A set of field paths (`set`) says what a manager owns. Comparing two objects by their schema (`compare`) gives the paths
//! that a write changed; they become the writer's and nobody else's (`track`). Apply (`apply`) merges an intent into the
//! live object, refuses what others own, and removes what the applier has let go.
//!
//! Invariant: pure; the same objects and managers give the same answer. The semantics are those of upstream's
//! structured-merge-diff, with the list kinds of the API schema.

mod apply;
mod compare;
mod managers;
mod path;
mod set;
mod shape;
mod track;

pub use apply::{Applied, ApplyError, apply};
pub use set::FieldSet;
pub use track::{Writer, track_update};
