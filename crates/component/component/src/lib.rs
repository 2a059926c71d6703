//! Frame of the components beside the API server: the parts that all of them have in the same form,
//! as in upstream's `component-base` and in the generic part of its API server.
//!
//! - [`DelegatedAccess`] checks the callers of a component's own server.
//! - [`host_name`] names the machine.
//!
//! Invariant: the crate knows no component. What differs between components is an argument.

mod delegated;
mod host_name;

pub use delegated::{AnswerLifetimes, DelegatedAccess, ReviewError};
pub use host_name::host_name;
