//! Problems and errors of decoding.

use std::fmt;

/// Treatment of unknown and duplicate fields: `fieldValidation` of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Drops them silently.
    Ignore,
    /// Drops and reports them, for warning headers.
    #[default]
    Warn,
    /// Reports them, so that the caller rejects the request.
    Strict,
}

impl Strictness {
    /// Returns whether problems are collected.
    pub fn reports(self) -> bool {
        self != Self::Ignore
    }
}

/// An unknown or duplicate field, with Kubernetes' message: `unknown field "spec.foo"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The type has no such field.
    Unknown(String),
    /// The field occurs twice; the last one counts.
    Duplicate(String),
    /// A key of a YAML mapping occurs twice.
    YamlDuplicate {
        /// Line of the second occurrence, from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "unknown field \"{path}\""),
            Self::Duplicate(path) => write!(f, "duplicate field \"{path}\""),
            Self::YamlDuplicate { line, key } => {
                write!(f, "line {line}: key \"{key}\" already set in map")
            }
        }
    }
}

/// Reasons why bytes are no object of the type. The texts are meant for `Status.message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not JSON, YAML or protobuf.
    #[error("{0}")]
    Syntax(String),
    /// A value has the wrong type.
    #[error("{0}")]
    Type(String),
    /// The nesting or another limit is exceeded.
    #[error("{0}")]
    TooDeep(String),
}
