//! Bootstrap tokens: the token itself, the Secret that stores it, and the signature with which it
//! vouches for the cluster-info ConfigMap.
//!
//! The API server authenticates, controllers sign and delete, and the operator creates. They share
//! this crate, so that all use the same format. The formats are those of
//! `k8s.io/cluster-bootstrap`.

mod cluster_info;
mod secret;
mod token;

pub use cluster_info::{
    CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_PREFIX, is_signature_valid,
    sign_content,
};
pub use secret::{Expiration, SECRET_NAMESPACE, SECRET_TYPE, TokenSecret, secret_name};
pub use token::{BootstrapToken, InvalidToken, is_token_id};
