//! Signer names, and accessors of CertificateSigningRequests.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest as Csr, CertificateSigningRequestCondition as Condition,
};

use controllers_runtime::time;

/// Signer of client certificates.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signer of kubelets' client certificates.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of kubelets' serving certificates.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Signer of requests of the old API version.
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";
/// Returns whether the request has the condition, and not with status False.
pub fn has_condition(csr: &Csr, kind: &str) -> bool {
    let all = csr
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    all.into_iter()
        // An absent status means True: conditions of v1beta1 had none.
        .any(|c| c.type_ == kind && c.status != "False")
}

/// Returns whether the certificate was issued.
pub fn is_signed(csr: &Csr) -> bool {
    csr.status
        .as_ref()
        .and_then(|s| s.certificate.as_ref())
        .is_some_and(|c| !c.0.is_empty())
}

/// Returns the usages of a request.
pub fn list_usages(csr: &Csr) -> Vec<&str> {
    csr.spec
        .usages
        .iter()
        .flatten()
        .map(String::as_str)
        .collect()
}

/// Returns a condition with status True.
pub fn new_condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(time::api_time(now)),
        last_transition_time: Some(time::api_time(now)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn condition_with_status_false_does_not_hold() {
        for (status, expect) in [("True", true), ("Unknown", true), ("False", false)] {
            let csr: Csr =
                serde_json::from_value(json!({"spec": {"request": "", "signerName": "x"},
                "status": {"conditions": [{"type": "Approved", "status": status}]}}))
                .unwrap();
            assert_eq!(has_condition(&csr, "Approved"), expect, "{status}");
            assert!(!has_condition(&csr, "Denied"));
        }
    }

    #[test]
    fn empty_certificate_is_not_issued() {
        for (certificate, expect) in [
            (json!(null), false),
            (json!(""), false),
            (json!("eA=="), true),
        ] {
            let csr: Csr =
                serde_json::from_value(json!({"spec": {"request": "", "signerName": "x"},
                "status": {"certificate": certificate}}))
                .unwrap();
            assert_eq!(is_signed(&csr), expect, "{certificate}");
        }
    }
}
