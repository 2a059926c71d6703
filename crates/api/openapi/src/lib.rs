//! Discovery and OpenAPI documents, built from the schema and the table of kinds.
//!
//! Documents are built on demand, and callers cache the bytes. This crate knows nothing about HTTP.

mod content;
mod custom;
mod custom_schema;
mod descriptions;
pub mod discovery;
pub mod gnostic;
mod names;
mod operations;
mod parameters;
mod remote;
mod schemas;
pub mod v2;
pub mod v3;
mod values;

pub use custom::{CustomResources, Definition};
pub use remote::{RemotePaths, RemotePathsError};
