//! Reasons why a verified token is no user.

/// Reasons why a verified token is refused. Values of claims are not part of any text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// A claim that is needed and absent.
    #[error("the claim {0} is not present")]
    Absent(String),
    /// A claim of a type that can't be used.
    #[error("the claim {0} has another type than expected")]
    WrongType(String),
    /// A claim whose value differs from the required one.
    #[error("the required claim {0} has another value")]
    OtherValue(String),
    /// The address is not verified.
    #[error("the email is not verified")]
    Unverified,
    /// A user without a name.
    #[error("the user name is empty")]
    NoName,
    /// An expression that can't be evaluated.
    #[error("the expression {expression:?} resulted in an error: {why}")]
    Evaluation {
        /// The expression.
        expression: String,
        /// The reason.
        why: String,
    },
    /// A result of another type.
    #[error("the expression of {0} returned another type than expected")]
    Result(&'static str),
    /// A rule that is false.
    #[error("validation expression {expression:?} failed: {message}")]
    Rule {
        /// The expression.
        expression: String,
        /// The operator's explanation.
        message: String,
    },
    /// The token is expired.
    #[error("the token is expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    TooEarly,
    /// The token is for other audiences.
    #[error("the token is for none of the expected audiences")]
    Audience,
}
