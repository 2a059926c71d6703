//! The Common Expression Language as Kubernetes v1.36 uses it: parser, type checker, cost estimate,
//! evaluator and function libraries.
//!
//! Invariant: everything is pure and bounded. No expression and no value makes it panic, recurse
//! without a limit, or run longer than its cost budget allows.

pub mod ast;
pub mod budget;
pub mod check;
pub mod compare;

pub mod cost;
pub mod environment;
pub mod error;
pub mod escaping;
pub mod estimate;
pub mod evaluate;
pub mod format;
pub mod function;
pub mod hosts;
pub mod library;
mod literals;
pub mod macros;
pub mod parser;
pub mod plan;
pub mod program;
pub mod regex;
pub mod schema;
pub mod source;
pub mod standard;
pub mod types;
mod validators;
pub mod value;
mod walk;

pub use budget::Budget;
pub use environment::TypeProvider;
pub use error::EvalError;
pub use estimate::SizeEstimates;
pub use evaluate::Variables;
pub use library::SemanticVersion;
pub use program::{Environment, Program};
pub use source::CompileError;
pub use types::Type;
pub use value::Value;
