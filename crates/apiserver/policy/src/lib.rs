//! Expressions in admission: the match conditions of webhooks, and admission policies.
//!
//! Decisions are pure: an expression is compiled once per change of its configuration and evaluated
//! within a budget. The plugins read policies, bindings and parameters from the watch caches.
//!
//! Invariant: every evaluation has a bound that no request can raise, and what can't be evaluated
//! counts by `failurePolicy`, which is Fail unless it says Ignore.

mod activation;
mod annotate;
mod authorizer;
mod conditions;
mod denial;
mod evaluate;
mod exempt;
mod lookup;
mod matching;
mod metrics;
mod mutating;
mod mutating_plugin;
mod namespace;
mod param_access;
mod params;
mod patch;
mod plugin;
mod source;
#[cfg(test)]
mod tests;
mod validating;

pub use conditions::MatchConditions;
pub use metrics::PolicyMetrics;
pub use mutating_plugin::MutatingPolicies;
pub use param_access::ParamAccessCheck;
pub use params::{ParamObjects, ParamResource};
pub use patch::PatchObjects;
pub use plugin::{PolicySetup, ValidatingPolicies};
