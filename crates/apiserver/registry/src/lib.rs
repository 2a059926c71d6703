//! The registry: what create, update, delete, get and list mean for every kind.
//!
//! One generic path serves all kinds; where a kind really behaves differently there is a small module (`namespaces`,
//! `pods`, `services`) or a subresource (`subresource/`). Writes are optimistic: read, change, check, compare-and-swap,
//! and again when somebody was faster. Nothing here knows HTTP.

mod admin_access;
mod collection;
mod create;
mod delete;
mod delete_options;
mod errors;
mod grace;
mod meta;
mod namespaces;
mod propagation;
mod read;
mod registry;
mod services;
mod subresource;
mod update;
mod write;

pub use collection::CollectionDelete;
pub use delete::Deleted;
pub use delete_options::{DeleteOptions, Propagation};
pub use errors::store_error;
pub use read::{ListQuery, ListResult};
pub use registry::{Registry, RegistryOptions};
pub use services::{Allocators, ServiceOptions, first_address};
pub use subresource::{Eviction, scale_of, selector_text};
pub use update::{Change, Mode, Update};
pub use write::Write;
