//! What the server says about itself: discovery documents and OpenAPI, made from the schema and the table of kinds.
//!
//! Documents are built on demand; callers keep the bytes they need. Nothing here knows about HTTP.

mod descriptions;
pub mod discovery;
pub mod gnostic;
mod names;
mod operations;
mod parameters;
mod schemas;
pub mod v2;
pub mod v3;
mod values;
