//! The storage version migrator: rewrites the objects of a resource, so that all are stored in its
//! storage version, and then removes the other versions from the definition's stored ones.
//!
//! Upstream has three controllers that pass a StorageVersionMigration on by its status. Here one
//! controller does the steps of a resource in order (`plan`), because no two may run at a time. The
//! status has upstream's conditions, so that either can finish a migration that the other has
//! begun.

mod controller;
mod definition;
mod plan;
mod rewrite;

pub use controller::add_storage_version_migrator;
