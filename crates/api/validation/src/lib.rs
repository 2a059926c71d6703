//! Defaults, validation and the create/update strategies of every built-in kind, over JSON trees.
//!
//! Invariants: everything here is pure (the same objects give the same answer, no clock, no IO); field paths, reasons and
//! messages are the stock server's, because clients and people match on them. Kinds are keyed by group and kind; a kind
//! without rows of its own still gets the metadata rules. Typed structs were rejected: the write path holds trees, and
//! decoding twice costs more than all the rules together.
//!
//! The order on the write path: `default_object` (after decoding and again after mutation by admission), admission,
//! `prepare_create` or `prepare_update`, `validate_create` or `validate_update`, `as_stored`.

mod admissionregistration;
mod apiextensions;
mod apps;
mod autoscaling;
mod batch;
mod cel;
mod certificates;
mod coordination;
mod core;
mod defaults;
mod discovery;
mod dispatch;
mod field;
mod flowcontrol;
mod metadata;
mod networking;
mod node;
mod pod;
mod policy;
mod rbac;
mod resource;
mod rules;
mod scheduling;
mod selector;
mod service;
mod storage;
mod strategy;
mod tree;

pub use defaults::default_object;
pub use dispatch::{Kind, validate_create, validate_update};
pub use field::{FieldError, Kind as ErrorKind, to_api_error};
pub use resource::{ADMIN_ACCESS_LABEL, validate_admin_access};
pub use strategy::{as_stored, prepare_create, prepare_update};
