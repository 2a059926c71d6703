//! The parts of a path.

use serde_json::Value;

/// Reason why a path has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The text is no path.
    Syntax(String),
    /// The path doesn't fit the object.
    Value(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Filter(Box<Filter>),
    Literal(Value),
}

/// `[start:end:step]`; a single index has no end of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slice {
    pub(super) start: Option<i64>,
    pub(super) end: Option<i64>,
    pub(super) step: Option<i64>,
    pub(super) single: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    pub(super) left: Vec<Step>,
    pub(super) comparison: Option<(Operator, Vec<Step>)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
