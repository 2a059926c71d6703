//! Controllers of cluster-wide objects: namespaces, service accounts, garbage collection, quotas,
//! certificates, volumes.

pub mod accounts;
pub mod aggregation;
pub mod ephemeral;
pub mod garbage;
pub mod namespace;
pub mod protection;
pub mod quota;
pub mod root_ca;
pub mod signing;
pub mod tokens;
pub mod volumes;

pub use accounts::service_accounts;
pub use aggregation::aggregation;
pub use ephemeral::ephemeral_volumes;
pub use garbage::garbage_collector;
pub use namespace::namespaces;
pub use protection::{attributes_class_protection, claim_protection, volume_protection};
pub use quota::{Deletions, resource_quota};
pub use root_ca::root_ca;
pub use signing::{
    Authorities, CLIENT, Ca, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, approving, cleaning, signing,
};
pub use tokens::{TokenKey, account_tokens};
pub use volumes::volume_binder;
