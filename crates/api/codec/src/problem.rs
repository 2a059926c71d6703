//! What can be wrong with a body.

use std::fmt;

/// What to do with unknown and duplicate fields: `fieldValidation` of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Drop them silently.
    Ignore,
    /// Drop them and report them, for warning headers.
    #[default]
    Warn,
    /// Report them, for the caller to refuse the request.
    Strict,
}

impl Strictness {
    /// True when problems are collected.
    pub fn reports(self) -> bool {
        self != Self::Ignore
    }
}

/// An unknown or duplicate field, in the words of Kubernetes: `unknown field "spec.foo"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The type has no such field.
    Unknown(String),
    /// The field stands there twice; the last one counts.
    Duplicate(String),
    /// A key of a YAML mapping stands there twice.
    YamlDuplicate {
        /// Line of the second one, from 1.
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
            Self::YamlDuplicate { line, key } => write!(f, "line {line}: key \"{key}\" already set in map"),
        }
    }
}

/// Why bytes are no object of the type. The texts are meant for `Status.message`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, YAML or protobuf at all.
    #[error("{0}")]
    Syntax(String),
    /// A value of the wrong type.
    #[error("{0}")]
    Type(String),
    /// Nested too deeply or otherwise over a bound.
    #[error("{0}")]
    TooDeep(String),
}
