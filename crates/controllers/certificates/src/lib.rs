//! Controllers of certificates: CertificateSigningRequests are approved for kubelets, signed, and
//! deleted when they are old; the root CA is published in every namespace.

mod approve;
mod ca;
mod clean;
mod csr;
mod error;
mod review;
mod root_ca;
mod rules;
mod serving;
mod sign;
mod usages;

pub use approve::add_csr_approver;
pub use ca::Ca;
pub use clean::{add_csr_cleaner, add_pod_request_cleaner};
pub use csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY};
pub use error::CaError;
pub use root_ca::{RootCaFile, add_root_ca_publisher, follow_root_ca};
pub use serving::add_serving_approver;
pub use sign::{Authorities, add_csr_signer};
