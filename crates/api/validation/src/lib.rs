//! Validation of all built-in kinds, on JSON trees.
//!
//! Invariants: everything is pure (no clock, no IO). Field paths, reasons and messages are
//! upstream's, because clients and users match them. Rules are selected by group and kind; a kind
//! without rules of its own gets the metadata rules. Rejected: typed structs, because the write
//! path uses trees, and decoding twice costs more than all rules together.
//!
//! Objects must be defaulted (`api-defaulting`) and prepared by the strategy of their kind
//! (`api-strategy`) before: the rules report a field that only those two set as missing.

mod addresses;
mod admissionregistration;
mod api_version;
mod apiextensions;
mod apiregistration;
mod apps;
mod authorization;
mod autoscaling;
mod batch;
mod cel;
mod certificates;
mod claim;
mod conditions;
mod coordination;
mod core;
mod custom;
mod discovery;
mod dispatch;
mod field;
mod flowcontrol;
mod ip;
mod kind_rules;
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
mod signer_name;
mod storage;
mod storage_versions;
mod warnings;
mod webhook_client;

pub use apiextensions::{
    APPROVAL_ANNOTATION, Approval, has_valid_conversion_bundle, is_protected_group, read_approval,
};
pub use authorization::validate_review;
pub use custom::{CustomOutcome, CustomRules, validate_custom_create, validate_custom_update};
pub use dispatch::{validate_create, validate_update};
pub use field::{ErrorKind, Errors, FieldError, Path, to_api_error};
pub use pod::find_disabled_resize;
pub use resource::{ADMIN_ACCESS_LABEL, validate_admin_access};
pub use rules::validate_domain_prefixed_path;
pub use warnings::object_warnings;
