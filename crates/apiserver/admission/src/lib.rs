//! The admission plugins, in the stock server's order and with its messages.
//!
//! `build_plugins` builds the list that the registry runs: every plugin's `admit` in order, then
//! every plugin's `validate`. Invariant: a plugin decides from the request and the watch caches.
//! Where a cache may lag behind a write that the client has seen succeed, the store is read before
//! a request is rejected. A new plugin is one file and one row of `table.rs`.

mod absent;
mod certificates;
mod claim_status;
mod context;
mod default_classes;
mod limit_ranger;
mod mountable_secrets;
mod namespace_lifecycle;
mod node_restriction;
mod pod_groups;
mod pod_resize;
mod pod_security;
mod pods;
mod priority;
mod quota;
mod quota_store;
mod resources;
mod runtime_class;
mod service_account;
mod storage;
mod table;
mod unenforced;

pub use context::{Context, PolicyPlugins, WebhookPlugins};
pub use quota_store::{QuotaSlot, QuotaStore};
pub use table::{Options, PluginError, build_plugins, known_plugins};

#[cfg(test)]
mod plugin_tests;
