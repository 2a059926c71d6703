//! Authorization: RBAC, the Node authorizer, their chain, the bootstrap roles, and the check that
//! prevents privilege escalation.
//!
//! Invariant: a decision uses indexes in memory, which observers of the watch caches maintain; it
//! does no IO and holds no lock for long. `Authz::new` builds the chain for a list of modes and
//! subscribes it.

pub mod bootstrap;
mod chain;
mod escalation;
mod message;
mod node;
mod rbac;

pub use chain::{AlwaysAllow, Authz, Mode, ModesError, PrivilegedGroup, UnknownMode, parse_modes};
pub use escalation::EscalationCheck;
pub use message::forbidden_error;
pub use node::{NodeAuthorizer, node_name};
pub use rbac::{Rbac, Rule};
