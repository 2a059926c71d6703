//! Controllers of identities and rights: service accounts, their tokens, bootstrap tokens,
//! aggregated ClusterRoles, and the status of admission policies.

pub mod accounts;
pub mod aggregation;
pub mod bootstrap;
pub mod legacy_tokens;
pub mod policies;
pub mod tokens;

pub use accounts::add_service_account_controller;
pub use aggregation::add_role_aggregation;
pub use bootstrap::{add_bootstrap_signer, add_token_cleaner};
pub use legacy_tokens::add_legacy_token_cleaner;
pub use policies::add_policy_status_controller;
pub use tokens::{TokenKey, add_token_controller};
