//! Policies and namespaces that are open or closed.

use std::sync::Arc;

use crate::policy::Policy;

/// A policy whose chains exist.
#[derive(Debug, Clone)]
pub(crate) struct InstalledPolicy {
    pub(crate) policy: Arc<Policy>,
    /// It allows what its rules say, and its sets exist. Otherwise it allows nothing.
    pub(crate) is_open: bool,
}

/// The reason why a policy allows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingReason {
    /// The policies of its namespace exceed a limit.
    Limit,
    /// Transactions failed with the policies of its namespace.
    Transaction,
}

/// A namespace that is closed because transactions failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedNamespace {
    /// The next transaction shows whether closing it helps.
    Suspected,
    /// A transaction succeeded once it was closed. The number is that of retries since.
    Offending(u32),
    /// The next retry opens it.
    Retried,
}
