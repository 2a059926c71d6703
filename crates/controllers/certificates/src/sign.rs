//! Signs approved requests.

use std::collections::BTreeMap;
use std::time::Duration;

use api_meta::certificate_request::CertificateRequest;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use controllers_runtime::{Action, Cache, Decide, Queue, Setup, wake};

use crate::ca::Ca;
use crate::csr::{has_condition, is_signed, list_usages, new_condition};
use crate::error::CaError;
use crate::rules::check_signer_rules;

/// CA of each signer that this process serves.
pub type Authorities = BTreeMap<&'static str, Ca>;

struct CsrSigner {
    requests: Cache<Csr>,
    authorities: Authorities,
}

/// Sets up the signing of approved requests.
pub fn add_csr_signer(setup: &mut Setup, authorities: Authorities) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<Csr>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler(
        "certificate-controller",
        1,
        queue,
        CsrSigner {
            requests,
            authorities,
        },
    );
}

impl Decide for CsrSigner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(csr) = self.requests.get(key) else {
            return Vec::new();
        };
        // Requests for other signers belong to other controllers in the cluster.
        let Some(ca) = self.authorities.get(csr.spec.signer_name.as_str()) else {
            return Vec::new();
        };
        // A certificate is never issued twice for one request: the first may already be in use.
        if is_signed(&csr)
            || !has_condition(&csr, "Approved")
            || has_condition(&csr, "Denied")
            || has_condition(&csr, "Failed")
        {
            return Vec::new();
        }
        let mut fresh = csr.as_ref().clone();
        let requested = csr
            .spec
            .expiration_seconds
            .and_then(|s| u64::try_from(s).ok())
            .map(Duration::from_secs);
        let signed = CertificateRequest::from_pem(&csr.spec.request.0)
            .map_err(CaError::Request)
            .and_then(|request| {
                // Approval does not replace the rules of the signer, which bind administrators,
                // too.
                check_signer_rules(&csr, &request)?;
                ca.sign(&request, &list_usages(&csr), requested, now)
            });
        let status = fresh.status.get_or_insert_default();
        match signed {
            Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            // A request that breaks a rule never becomes valid, so it fails instead of being
            // retried.
            Err(error) => {
                let failed =
                    new_condition("Failed", "SignerValidationFailure", &error.to_string(), now);
                status.conditions.get_or_insert_default().push(failed);
            }
        }
        vec![Action::update_status(&fresh)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    /// Returns the actions for a request with these conditions; the signer has no CA that could sign.
    fn sign(conditions: serde_json::Value, signer: &str) -> Vec<String> {
        let csr: Csr = serde_json::from_value(json!({"metadata": {"name": "c"},
            "spec": {"request": "", "signerName": signer}, "status": {"conditions": conditions}}))
        .unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let ca = Ca::from_pem(
            &certificate.pem(),
            &key.serialize_pem(),
            Duration::from_secs(60),
        )
        .unwrap();
        let signer = CsrSigner {
            requests: Cache::with_objects(vec![csr]),
            authorities: Authorities::from([(crate::CLIENT, ca)]),
        };
        describe_actions(&signer.reconcile("c", Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn only_approved_requests_of_own_signers_are_processed() {
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let approved = condition("Approved");
        for (conditions, signer, expect) in [
            (json!([]), crate::CLIENT, 0),
            (json!([approved]), crate::CLIENT, 1),
            (json!([approved, condition("Denied")]), crate::CLIENT, 0),
            (json!([approved, condition("Failed")]), crate::CLIENT, 0),
            (json!([approved]), "example.com/signer", 0),
        ] {
            assert_eq!(
                sign(conditions.clone(), signer).len(),
                expect,
                "{conditions} {signer}"
            );
        }
    }
}
