//! The registry: create, update, delete, get and list of every kind.
//!
//! One generic path serves all kinds. Kinds with behaviour of their own have a small module
//! (`namespaces`, `services`, `grace` for pods) or a subresource (`subresource/`). Writes use
//! optimistic concurrency: read, change, check, compare-and-swap, and retry after a conflict. This
//! crate does not know HTTP.

mod admin_access;
mod allocators;
mod collection;
mod create;
mod delete;
mod delete_options;
mod errors;
mod grace;
mod meta;
mod namespaces;
mod owners;
mod ownership;
mod propagation;
mod read;
mod registry;
mod scale_view;
mod services;
mod step_metrics;
mod strategy;
mod subresource;
#[cfg(test)]
mod tests;
mod update;
mod write;

pub use allocators::{Allocators, ServiceOptions};
pub use collection::CollectionDelete;
pub use delete::DeleteOutcome;
pub use delete_options::{DeleteOptions, Propagation};
pub use errors::store_error;
pub use ownership::build_conflict_error;
pub use propagation::warn_about_orphans;
pub use read::{ListQuery, ListResult};
pub use registry::{Registry, RegistryOptions};
pub use scale_view::{check_scalable, scale_of, selector_text};
pub use services::first_address;
pub use step_metrics::StepMetrics;
pub use subresource::Eviction;
pub use update::{Change, Mode, ObjectChange, Update};
pub use write::Write;
