//! Controllers of identities and rights: service accounts, their tokens, aggregated ClusterRoles.

pub mod accounts;
pub mod aggregation;
pub mod tokens;

pub use accounts::add_service_account_controller;
pub use aggregation::add_role_aggregation;
pub use tokens::{TokenKey, add_token_controller};
