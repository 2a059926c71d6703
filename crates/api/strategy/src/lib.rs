//! Create and update strategies: server-owned fields, generation, and the part of the object that a
//! subresource owns.
//!
//! Invariant: fields that a writer must not change are silently taken from the old object, like in
//! upstream's strategies. Validation then sees the result. The clock is read for times in a status
//! that the writer omitted, and for nothing else.
//!
//! Order on the write path: defaulting, `prepare_create` or `prepare_update`, admission, then
//! defaulting and strategy again, validation, `as_stored`.

mod claim;
mod create;
pub mod custom;
mod daemon_set;
pub mod definition;
mod disabled;
mod fields;
mod jobs;
mod new_pod;
mod pod;
mod rules;
mod service;
mod status;
mod stored;
mod update;

pub use create::prepare_create;
pub use disabled::{DisabledFields, field_gates};
pub use stored::as_stored;
pub use update::prepare_update;
