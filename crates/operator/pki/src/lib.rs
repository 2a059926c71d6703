//! The certificates of a cluster: three separate CAs (cluster, front proxy, store), the
//! certificates of each component, the key that signs ServiceAccount tokens, and kubeconfigs.
//!
//! Everything is ECDSA P-256. Keys are written with mode 0600, and only if the existing certificate
//! is no longer valid (other names, other CA, near its expiration): a second run changes nothing.

mod authority;
mod certificate;
mod error;
mod files;
mod key_pair;
mod kubeconfig;
mod sealed;
mod set;

pub use authority::Authority;
pub use certificate::{
    CertificateSummary, Subject, Usage, ensure_certificate, list_certificate_hosts,
    summarize_certificate,
};
pub use error::Error;
pub use kubeconfig::{Kubeconfig, NamedServer, encode_base64, write_admin_kubeconfig};
pub use sealed::{
    CertificateKey, InvalidCertificateKey, KeyFile, KeyMismatch, SealError, find_mismatched_key,
    list_shared_files, write_shared_file,
};
pub use set::{
    KUBELET_CLIENT, Names, NodeName, Pki, Renewal, ensure_pki, ensure_service_account_key,
    list_leaf_names, write_pki,
};
