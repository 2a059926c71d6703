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
    let requests = setup.informers.of::<Csr>().on(wake::itself(&queue)).cache();
    setup.decide(
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
        let Some(ca) = self.authorities.get(csr.spec.signer_name.as_str()) else {
            return Vec::new();
        };
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
                check_signer_rules(&csr, &request)?;
                ca.sign(&request, &list_usages(&csr), requested, now)
            });
        let status = fresh.status.get_or_insert_default();
        match signed {
            Ok(pem) => status.certificate = Some(ByteString(pem.into_bytes())),
            Err(error) => {
                let failed =
                    new_condition("Failed", "SignerValidationFailure", &error.to_string(), now);
                status.conditions.get_or_insert_default().push(failed);
            }
        }
        vec![Action::update_status(&fresh)]
    }
}
