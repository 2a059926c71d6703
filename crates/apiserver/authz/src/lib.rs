//! Authorisation: RBAC, the Node authoriser, the chain that asks them, the bootstrap roles, and the checks that keep
//! people from granting more than they hold.
//!
//! Invariant: a decision comes from indexes in memory that observers of the watch caches keep; it does no IO and takes no
//! lock for long. `Authz::new` builds the chain for a list of modes and subscribes it.

pub mod bootstrap;
mod chain;
mod escalation;
mod message;
mod node;
mod rbac;

pub use chain::{AlwaysAllow, Authz, Mode, Privileged, UnknownMode};
pub use escalation::EscalationCheck;
pub use message::forbidden;
pub use node::{NodeAuthorizer, node_name};
pub use rbac::{Rbac, Rule};
