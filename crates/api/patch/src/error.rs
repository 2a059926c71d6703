//! Errors of patches.

/// Reason for rejecting a patch. The variant determines the HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: 400 BadRequest.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not match the object: 422 Invalid.
    #[error("{0}")]
    Inapplicable(String),
    /// The patch exceeds a limit: 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// Strategic merge does not know a directive: upstream responds with 500.
    #[error("{0}")]
    Directive(String),
}
