//! Users, roles and permissions: replicated state and authorization decisions.
//!
//! Pure functions: no clock, no password hashing, no tokens. Passwords arrive hashed.

mod permissions;
mod store;

pub use permissions::Access;
pub use store::{Auth, AuthError, ROOT};
