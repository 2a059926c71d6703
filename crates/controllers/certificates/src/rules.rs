//! Rules of the signers of `kubernetes.io`.

use api_meta::certificate_request::{CertificateRequest, check_client_usages};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use crate::csr::{CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, list_usages};
use crate::error::CaError;

/// Checks a request against the rules of its signer.
///
/// # Errors
/// The violated rule.
pub fn check_signer_rules(csr: &Csr, request: &CertificateRequest) -> Result<(), CaError> {
    let usages = list_usages(csr);
    match csr.spec.signer_name.as_str() {
        CLIENT => check_client_usages(&usages)?,
        KUBELET_CLIENT => request.check_kubelet_client(&usages)?,
        KUBELET_SERVING => {
            request.check_kubelet_serving(&usages)?;
            // A kubelet may request a serving certificate for itself only.
            if csr.spec.username.as_deref() != Some(&request.common_name) {
                return Err(CaError::Rejected("the subject is not the one who asks"));
            }
        }
        LEGACY => {}
        _ => return Err(CaError::Rejected("the signer is not known")),
    }
    Ok(())
}
