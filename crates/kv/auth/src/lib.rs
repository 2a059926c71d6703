//! Users, roles, permissions: the state that the log makes, and the decisions taken from it.
//!
//! Pure: no clock, no hashing, no tokens. Passwords arrive hashed.

mod permissions;
mod store;

pub use permissions::Access;
pub use store::{Auth, AuthError, ROOT};
