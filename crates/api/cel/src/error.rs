//! Errors of an evaluation.

/// An error of an evaluation. `&&`, `||` and the comprehensions absorb all but a cancellation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// A function has no overload for the values that it was called with.
    #[error("no such overload")]
    NoSuchOverload,
    /// A map has no such key, or an object no such field.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A variable has no value.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    /// A list has no such element.
    #[error("index out of bounds: {0}")]
    IndexOutOfBounds(String),
    /// A result does not fit its type.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// A division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// A remainder of zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// Any other error, with the text that cel-go prints.
    #[error("{0}")]
    Message(String),
    /// The evaluation exceeded its cost budget.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
}

impl EvalError {
    /// Creates an error with a text.
    pub fn message(text: impl Into<String>) -> Self {
        EvalError::Message(text.into())
    }

    /// Reports that the evaluation must end, so that no operator may absorb the error.
    pub fn is_cancellation(&self) -> bool {
        matches!(self, EvalError::CostLimitExceeded)
    }
}
