//! Signs approved requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api_meta::certificate_request::CertificateRequest;
use base_tls::Followed;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;

use controllers_runtime::{Action, Cache, Decide, Meta, Queue, Setup, wake, watch_files};

use crate::ca::Ca;
use crate::csr::{has_condition, is_signed, list_usages, new_condition};
use crate::error::CaError;
use crate::rules::check_signer_rules;

/// CA of each signer that this process serves. Signers may share the files of one.
pub type Authorities = BTreeMap<&'static str, Arc<Followed<Ca>>>;

/// Shortest pause before another attempt to sign a request.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, which is that of upstream's queue.
const LONGEST_PAUSE: Duration = Duration::from_secs(1000);

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
    for ca in list_distinct_authorities(&authorities) {
        let (all, stale) = (requests.clone(), queue.clone());
        // The files are read here, and not by the decisions. A request that the former CA could
        // not sign waits for up to 1000 s otherwise.
        watch_files(&setup.tasks, "certificate-controller", ca, move || {
            all.list().iter().for_each(|csr| stale.add(csr.key()));
        });
    }
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

fn list_distinct_authorities(authorities: &Authorities) -> Vec<&Arc<Followed<Ca>>> {
    let mut distinct: Vec<&Arc<Followed<Ca>>> = Vec::new();
    for ca in authorities.values() {
        if !distinct.iter().any(|other| Arc::ptr_eq(other, ca)) {
            distinct.push(ca);
        }
    }
    distinct
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
        match decide_outcome(&csr, &ca.last_read(), now) {
            Ok(outcome) => {
                let mut fresh = csr.as_ref().clone();
                let status = fresh.status.get_or_insert_default();
                match outcome {
                    Outcome::Signed(pem) => {
                        status.certificate = Some(ByteString(pem.into_bytes()));
                    }
                    Outcome::Rejected(why) => {
                        let reason = "SignerValidationFailure";
                        let failed = new_condition("Failed", reason, &why.to_string(), now);
                        status.conditions.get_or_insert_default().push(failed);
                    }
                }
                vec![Action::update_status(&fresh)]
            }
            Err(error) => {
                let pause = retry_pause(&csr, now);
                tracing::warn!(
                    name = key,
                    %error,
                    ?pause,
                    "an approved certificate request can't be signed; check that the CA of its signer \
                     is valid. The next attempt follows after the pause"
                );
                vec![Action::Requeue(pause)]
            }
        }
    }
}

/// The end of a request.
enum Outcome {
    /// The certificate as PEM.
    Signed(String),
    /// The request breaks a rule of its signer and never becomes valid.
    Rejected(CaError),
}

/// Decides about an approved request.
///
/// # Errors
/// The request can't be signed now, for instance because the CA has expired. As upstream, it does
/// not fail: the next CA may sign it.
fn decide_outcome(csr: &Csr, ca: &Ca, now: Timestamp) -> Result<Outcome, CaError> {
    let request = CertificateRequest::from_pem(&csr.spec.request.0)?;
    // Approval does not replace the rules of the signer, which bind administrators, too.
    if let Err(violated) = check_signer_rules(csr, &request) {
        return Ok(Outcome::Rejected(violated));
    }
    let requested = csr
        .spec
        .expiration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .map(Duration::from_secs);
    let pem = ca.sign(&request, &list_usages(csr), requested, now)?;
    Ok(Outcome::Signed(pem))
}

/// Returns the pause before the next attempt: the age of the request, so that the pauses double
/// without a count of the attempts.
fn retry_pause(csr: &Csr, now: Timestamp) -> Duration {
    let created = csr.metadata.creation_timestamp.as_ref();
    let age = created.map_or(Duration::MAX, |created| {
        Duration::try_from(now.duration_since(created.0)).unwrap_or_default()
    });
    age.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    const NOW: &str = "2026-01-01T00:00:00Z";

    /// Returns certificate and key of a CA that is valid until a year, both PEM.
    fn make_pair(name: &str, year: i32) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Files of a CA.
    struct CaFiles(tempfile::TempDir);

    impl CaFiles {
        fn new((certificate, key): &(String, String)) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            files.write("ca.crt", certificate);
            files.write("ca.key", key);
            files
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).unwrap();
        }

        fn follow(&self) -> Arc<Followed<Ca>> {
            let [certificate, key] = ["ca.crt", "ca.key"].map(|name| self.0.path().join(name));
            let ca = Ca::follow_files(&certificate, &key, Duration::from_secs(60)).unwrap();
            Arc::new(ca.check_every(Duration::ZERO))
        }
    }

    fn signer_of(csr: serde_json::Value, ca: Arc<Followed<Ca>>) -> CsrSigner {
        CsrSigner {
            requests: Cache::with_objects(vec![serde_json::from_value(csr).unwrap()]),
            authorities: Authorities::from([(crate::CLIENT, ca)]),
        }
    }

    /// Returns the actions for a request to a signer whose CA is valid until 2030.
    fn decide(csr: serde_json::Value, now: &str) -> Vec<Action> {
        let files = CaFiles::new(&make_pair("ca", 2030));
        signer_of(csr, files.follow()).reconcile("c", now.parse().unwrap())
    }

    /// Returns the common name of the issuer of the certificate that an action writes.
    fn issuer_of(actions: &[Action]) -> String {
        let write = actions.first().and_then(Action::as_write).unwrap();
        let certificate = write.body.pointer("/status/certificate").unwrap();
        let pem: ByteString = serde_json::from_value(certificate.clone()).unwrap();
        let (_, block) = x509_parser::pem::parse_x509_pem(&pem.0).unwrap();
        let certificate = block.parse_x509().unwrap();
        let mut names = certificate.issuer().iter_common_name();
        names.next().unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn changed_pair_signs_the_next_request_and_half_a_pair_does_not() {
        let (old, new) = (make_pair("old", 2030), make_pair("a new one", 2030));
        let files = CaFiles::new(&old);
        let request = rcgen::CertificateParams::default()
            .serialize_request(&rcgen::KeyPair::generate().unwrap());
        let pem = request.unwrap().pem().unwrap();
        let csr = approved_request(pem.as_bytes(), &["client auth"], NOW);
        let ca = files.follow();
        let signer = signer_of(csr, ca.clone());
        for (name, text, expect) in [
            // Only the certificate is replaced yet.
            ("ca.crt", new.0.as_str(), "old"),
            ("ca.key", &new.1, "a new one"),
            ("ca.key", "broken", "a new one"),
            ("ca.key", &new.1, "a new one"),
            // Others still trust the former CA.
            ("ca.crt", &format!("{}{}", new.0, old.0), "a new one"),
        ] {
            files.write(name, text);
            ca.current();
            let actions = signer.reconcile("c", NOW.parse().unwrap());
            assert_eq!(issuer_of(&actions), expect, "{name}");
        }
    }

    fn condition(kind: &str) -> serde_json::Value {
        json!({"type": kind, "status": "True"})
    }

    #[test]
    fn only_approved_requests_of_own_signers_are_processed() {
        let approved = condition("Approved");
        for (conditions, signer, expect) in [
            (json!([]), crate::CLIENT, 0),
            (json!([approved]), crate::CLIENT, 1),
            (json!([approved, condition("Denied")]), crate::CLIENT, 0),
            (json!([approved, condition("Failed")]), crate::CLIENT, 0),
            (json!([approved]), "example.com/signer", 0),
        ] {
            let csr = json!({"metadata": {"name": "c"}, "status": {"conditions": conditions},
                "spec": {"request": "", "signerName": signer}});
            assert_eq!(decide(csr, NOW).len(), expect, "{conditions} {signer}");
        }
    }

    /// Returns an approved request to the signer of client certificates, created at this time.
    fn approved_request(pem: &[u8], usages: &[&str], created: &str) -> serde_json::Value {
        let request = ByteString(pem.to_vec());
        json!({"metadata": {"name": "c", "creationTimestamp": created},
            "status": {"conditions": [condition("Approved")]},
            "spec": {"request": request, "usages": usages, "signerName": crate::CLIENT}})
    }

    #[test]
    fn only_a_violated_rule_of_the_signer_makes_a_request_fail() {
        let key = rcgen::KeyPair::generate().unwrap();
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let pem = request.unwrap().pem().unwrap();
        let pem = pem.as_bytes();
        for (case, request, usages, now, expect) in [
            ("valid", pem, &["client auth"][..], NOW, "certificate"),
            (
                "rule",
                pem,
                &["server auth"],
                NOW,
                "SignerValidationFailure",
            ),
            ("malformed", b"x", &["client auth"], NOW, "requeue 60s"),
            (
                "expired CA",
                pem,
                &["client auth"],
                "2031-01-01T00:00:00Z",
                "requeue 1000s",
            ),
        ] {
            let csr = approved_request(request, usages, "2025-12-31T23:59:00Z");
            let actions = decide(csr, now);
            let found = match actions.first().and_then(Action::as_write) {
                Some(write) => match write.body.pointer("/status/certificate") {
                    Some(_) => "certificate".to_owned(),
                    None => {
                        let reason = write.body.pointer("/status/conditions/1/reason");
                        reason
                            .and_then(|r| r.as_str())
                            .unwrap_or_default()
                            .to_owned()
                    }
                },
                None => describe_actions(&actions).join(" "),
            };
            assert_eq!((actions.len(), found.as_str()), (1, expect), "{case}");
        }
    }

    #[test]
    fn pauses_between_attempts_grow_with_the_age_of_the_request() {
        for (created, expect) in [
            ("2026-01-01T00:00:00Z", "requeue 1s"),
            ("2026-01-01T00:00:09Z", "requeue 1s"),
            ("2025-12-31T23:59:30Z", "requeue 30s"),
            ("2025-12-31T00:00:00Z", "requeue 1000s"),
        ] {
            let found = describe_actions(&decide(approved_request(b"x", &[], created), NOW));
            assert_eq!(found, [expect], "{created}");
        }
    }
}
