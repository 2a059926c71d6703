//! The edge to the expression language: match conditions are compiled and evaluated elsewhere.

use apiserver_request::User;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Compiles `matchConditions`.
pub trait ConditionCompiler: Send + Sync {
    /// Compiles the conditions (`name`, `expression`) of one webhook.
    ///
    /// # Errors
    /// An expression that does not compile, with the text for the client.
    fn compile_conditions(&self, conditions: &[Value]) -> Result<Arc<dyn Conditions>, String>;
}

/// Compiled conditions; all of them must hold.
#[async_trait::async_trait]
pub trait Conditions: Send + Sync {
    /// Returns whether the webhook is to be called. As upstream, one condition that is false wins
    /// over the errors of others.
    async fn matches(&self, input: &ConditionInput<'_>) -> ConditionVerdict;
}

/// The outcome of match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionVerdict {
    /// False if a condition is false. An error if none is, and at least one could not be evaluated.
    pub holds: Result<bool, String>,
    /// Conditions that could not be evaluated, up to the first one that is false.
    pub failed: u64,
    /// Time that the evaluation took.
    pub elapsed: Duration,
}

/// The variables of conditions.
pub struct ConditionInput<'a> {
    /// `request` of the AdmissionReview, without the objects.
    pub request: &'a Value,
    /// The object in the webhook's version, or null.
    pub object: &'a Value,
    /// The old object in the webhook's version, or null.
    pub old_object: &'a Value,
    /// The user of the request, for `authorizer`.
    pub user: &'a User,
}

/// Fails to compile all conditions.
#[cfg(test)]
pub(crate) struct NoConditions;

#[cfg(test)]
impl ConditionCompiler for NoConditions {
    fn compile_conditions(&self, _: &[Value]) -> Result<Arc<dyn Conditions>, String> {
        Err("no compiler".to_owned())
    }
}
