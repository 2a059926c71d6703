//! Attacks on the API server, by tenants and nodes with few permissions and by clients without any.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "api/joining.rs"]
mod joining;
#[path = "api/load.rs"]
mod load;
#[path = "api/paths.rs"]
mod paths;
