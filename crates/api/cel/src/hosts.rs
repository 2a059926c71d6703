//! Environments of the places that evaluate expressions: admission policies, match conditions of
//! webhooks, custom resources, device selectors, authentication and authorization configuration.

pub mod admission;
pub mod device;
pub mod identity;
pub mod patch;
pub mod policy;
pub mod shape;

use crate::library::catalog::kubernetes_libraries;
use crate::program::Environment;

/// Minor version of the environment that checks expressions before they are stored: one below the
/// server's, so that the server before it can read them after a rollback.
pub const NEW_EXPRESSIONS: u16 = 35;
/// Minor version of the environment that evaluates stored expressions and those of configuration
/// files, which may come from any version.
pub const STORED_EXPRESSIONS: u16 = u16::MAX;

/// Variable of a rule of a custom resource: the value at the rule's node.
pub const SELF: &str = "self";
/// Variable of a rule of a custom resource: the value before an update.
pub const OLD_SELF: &str = "oldSelf";

/// Creates the environment that all others extend.
pub fn create_base(minor: u16) -> Environment {
    Environment::new(minor, kubernetes_libraries())
}
