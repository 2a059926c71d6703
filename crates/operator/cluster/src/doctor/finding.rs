//! A problem, as the operator sees it.

use serde::Serialize;

/// Severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// A part of the cluster does not work.
    Error,
    /// It works, but may soon not, or not as expected.
    Warning,
}

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
    /// The object: `node vm`, `pod default/web`.
    pub subject: String,
    /// The problem.
    pub problem: String,
    /// A command that repairs it, or shows more.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(
        severity: Severity,
        subject: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            subject: subject.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}
