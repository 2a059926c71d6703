//! The bootstrap roles and bindings, and their reconciliation with stored ones.
//!
//! The policy is a compact text beside this file, parsed when the server starts. Reconciliation is
//! pure: stored objects in, writes out. An object with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.

mod parse;
mod reconcile;

pub use parse::bootstrap_objects;
pub use reconcile::{Write, reconcile_object};

/// The resources that have bootstrap objects, roles before bindings.
pub const RESOURCES: [&str; 4] = [
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
];

/// The opt-out annotation.
pub const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

const POLICY: &str = include_str!("bootstrap/policy.txt");
