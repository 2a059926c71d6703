//! Why a patch is refused.

/// A refusal; the variant decides the HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch itself is malformed: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422 Invalid.
    #[error("{0}")]
    Inapplicable(String),
    /// The patch is over a bound: 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// A directive that strategic merge does not know: upstream answers 500.
    #[error("{0}")]
    Directive(String),
}
