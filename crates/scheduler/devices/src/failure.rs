//! Reasons for which claims are not allocated.

use crate::limits::Expired;

/// The claims of a pod can't be allocated on any node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// An object is missing, or the claim asks for something that this scheduler does not know.
    #[error("{0}")]
    Unschedulable(String),
    /// Claim or class are wrong.
    #[error("{0}")]
    Wrong(String),
    /// The time for the attempt is over.
    #[error("timed out trying to allocate devices")]
    Expired,
}

/// The claims can't be allocated on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The node has no devices for the claims.
    #[error("cannot allocate all claims")]
    NoDevices,
    /// The slices of a pool contradict each other or are incomplete.
    #[error("{0}")]
    NotNow(String),
    /// A selector of a claim or class fails for a device of the node.
    #[error("{0}")]
    Selector(String),
    /// The bounds of the search were reached.
    #[error("timed out trying to allocate devices")]
    Expired,
}

impl From<Expired> for Failure {
    fn from(_: Expired) -> Self {
        Self::Expired
    }
}
