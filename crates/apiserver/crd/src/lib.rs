//! The life cycle of custom resource definitions: names and conditions, the resources that they
//! describe, and the cleanup when they are deleted.
//!
//! Decisions are pure (`names`, `approval`, `structure`, `conditions`, `resources`); `reconcile`
//! and `cleanup` execute them. Several API servers do this at the same time: every step starts from
//! the state in the watch cache, and every write is optimistic.
//!
//! Invariant: a definition is established only after this server has installed its resources, and
//! loses its finalizer only after all its objects are deleted.

mod approval;
mod backlog;
mod cleanup;
mod conditions;
mod definition;
mod guard;
mod known;
mod names;
mod reconcile;
mod resources;
mod structure;

pub use backlog::Backlog;
pub use conditions::find_next_status;
pub use guard::TerminatingGuard;
pub use names::{AcceptedNames, TakenNames, accept_names};
pub use reconcile::{BuildConverter, DefinitionOptions, Definitions};
pub use resources::{BuildError, build_resources};
