//! Errors of the decoder.

use std::fmt;

use crate::DecodeError;

/// A reason why bytes are no acceptable CBOR.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("exceeded max depth")]
    TooDeep,
    #[error("too many values")]
    TooMany,
    #[error("unexpected EOF")]
    End,
    #[error("{0}")]
    Item(String),
}

impl Error {
    pub(super) fn item(text: impl Into<String>) -> Self {
        Self::Item(text.into())
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Item(text.to_string())
    }
}

impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooDeep => Self::TooDeep(error.to_string()),
            other => Self::Syntax(format!("cbor: {other}")),
        }
    }
}
