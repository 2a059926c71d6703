//! Defaulting, validation and create/update strategies of all built-in kinds, on JSON trees.
//!
//! Invariants: everything is pure (no clock, no IO). Field paths, reasons and messages are
//! upstream's, because clients and users match them. Rules are selected by group and kind; a kind
//! without rules of its own gets the metadata rules. Rejected: typed structs, because the write
//! path uses trees, and decoding twice costs more than all rules together.
//!
//! Order on the write path: `default_object` (after decoding and again after mutating admission),
//! admission, `prepare_create` or `prepare_update`, `validate_create` or `validate_update`,
//! `as_stored`.

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
