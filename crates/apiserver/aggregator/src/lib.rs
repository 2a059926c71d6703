//! APIServices: the local ones that the server keeps, the index of the remote ones, the identity
//! that is sent to extension servers, their availability and their part of discovery.
//!
//! Invariant: an extension server is called only over TLS that its APIService describes, with the
//! user that was authenticated here; no header of the client names a user. All decisions are pure;
//! the server crate does the IO.

mod availability;
mod condition;
mod discovery;
mod extension;
mod identity;
mod index;
mod local;
mod priority;
mod sync;

pub use availability::check_service;
pub use condition::{Condition, available_condition, set_condition};
pub use discovery::{
    RemoteVersion, merge_aggregated, merge_group, merge_groups, parse_resource_list,
};
pub use extension::{ClientIdentity, ExtensionServer};
pub use identity::identity_headers;
pub use index::ApiServiceIndex;
pub use local::{ServedVersions, desired_services};
pub use sync::{Action, plan_sync};
