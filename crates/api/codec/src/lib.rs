//! Codecs of objects: JSON, YAML, protobuf and CBOR, from and to trees that are checked against the
//! schema.
//!
//! A tree is **canonical** if it equals the output of Go's encoder without the nulls. All decoders
//! return canonical trees, so two objects are equal exactly if their trees are. Code that changes a
//! tree (patches, defaults) calls [`json::check`] or [`json::canonicalize`] afterwards. Encoders
//! accept any tree and write canonical bytes.

mod canonical;
pub mod cbor;
pub mod envelope;
pub mod json;
pub mod list;
mod members;
mod problem;
pub mod proto;
mod scalars;
pub mod transcode;
pub mod watch;
pub mod yaml;

pub use problem::{DecodeError, Problem, Strictness};
