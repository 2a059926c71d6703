//! The Common Expression Language as Kubernetes v1.36 uses it: parser, type checker, cost estimate,
//! evaluator and function libraries.
//!
//! Invariant: everything is pure and bounded. No expression and no value makes it panic, recurse without
//! a limit, or run longer than its cost budget allows.

pub mod ast;
pub mod cost;
pub mod error;
pub mod escaping;
pub mod format;
pub mod function;
pub mod library;
pub mod schema;
pub mod types;
pub mod value;

pub use error::EvalError;
pub use types::Type;
pub use value::Value;
