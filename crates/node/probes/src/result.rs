//! The result of one check.

use crate::thresholds::Health;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// A result, with a message.
    Completed(Health, String),
    /// No result, for reasons outside the container.
    Unknown(String),
}

impl CheckResult {
    pub(crate) fn failure(text: impl Into<String>) -> Self {
        CheckResult::Completed(Health::Unhealthy, text.into())
    }

    pub(crate) fn success(text: impl Into<String>) -> Self {
        CheckResult::Completed(Health::Healthy, text.into())
    }
}
