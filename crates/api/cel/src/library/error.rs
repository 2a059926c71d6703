//! The error of a library function before it becomes an error of the evaluation.

/// A message for the author of an expression. The texts are upstream's, because users match them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub(crate) String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Error(message.into())
    }
}
