//! Objects as bytes: JSON, protobuf and YAML, from and to trees checked against the schema.
//!
//! A tree is **canonical** when it is what Go's encoder would write, without the nulls: every decoder here returns
//! canonical trees, so two objects are equal exactly when their trees are. Code that changes a tree (patches, defaults)
//! calls [`json::check`] or [`json::canonicalize`] afterwards. Encoders accept any tree and write canonical bytes.

mod canonical;
pub mod envelope;
pub mod json;
pub mod list;
mod problem;
pub mod proto;
mod scalars;
pub mod watch;
pub mod yaml;

pub use problem::{DecodeError, Problem, Strictness};
