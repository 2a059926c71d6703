//! Controllers of persistent storage: binding of claims and volumes, protection of both while they
//! are in use, claims of ephemeral volumes.
//!
//! A binding is written on the volume first, then on the claim: a volume that names a claim is
//! bound even if the second write fails. Dynamic provisioning is left to external provisioners.

pub mod binder;
mod claim;
pub mod ephemeral;
mod matching;
pub mod protection;

pub use binder::{Binder, add_volume_binder};
pub use ephemeral::add_ephemeral_volume_controller;
pub use protection::{
    add_attributes_class_protection, add_claim_protection, add_volume_protection,
};
