//! Authorization: RBAC, the Node authorizer, ABAC, webhooks, their chain, the bootstrap roles, and
//! the check that prevents privilege escalation.
//!
//! Invariant: a decision uses indexes in memory, which observers of the watch caches maintain, and
//! holds no lock for long. Only a webhook does IO, and only if no earlier authorizer and no cached
//! decision has decided. `Authz::new` builds the chain of a configuration and subscribes it.

mod abac;
mod authz;
pub mod bootstrap;
mod chain;
mod config;
mod escalation;
mod fixed;
mod message;
mod metrics;
mod mode;
mod node;
mod rbac;
mod webhook;

pub use abac::{Abac, PolicyFileError};
pub use authz::{Authz, AuthzError, AuthzSetup};
pub use config::{AuthorizerSpec, LoadedConfig, read_authorization_config};
pub use escalation::EscalationCheck;
pub use fixed::{AlwaysAllow, PrivilegedGroup};
pub use message::{aggregate_errors, forbidden_error};
pub use mode::{Mode, ModesError, UnknownMode, parse_modes};
pub use node::{NodeAuthorizer, node_name};
pub use rbac::{Rbac, Rule};
pub use webhook::{ConnectServer, MatchCondition, ReviewServer, WebhookConnections, WebhookSpec};
