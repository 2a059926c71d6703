//! Deletes old requests.

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::certificates::v1beta1::PodCertificateRequest;

use controllers_runtime::{Action, Cache, Decide, Queue, Setup, time, wake};

/// Seconds for which issued, denied or failed requests are kept.
const DECIDED_FOR: i64 = 3600;
/// Seconds for which undecided requests, and approved ones without a certificate, are kept.
const PENDING_FOR: i64 = 24 * 3600;

struct CsrCleaner {
    requests: Cache<Csr>,
}

/// Sets up the deletion of old requests.
pub fn add_csr_cleaner(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<Csr>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    setup.add_reconciler("certificate-controller", 1, queue, CsrCleaner { requests });
}

/// Seconds for which requests of pod certificates are kept, decided or not: kubelets take a
/// certificate at once.
const POD_REQUEST_FOR: i64 = 30 * 60;

struct PodRequestCleaner {
    requests: Cache<PodCertificateRequest>,
}

/// Sets up the deletion of old requests of pod certificates.
pub fn add_pod_request_cleaner(setup: &mut Setup) {
    let queue = Queue::new();
    let requests = setup
        .informers
        .for_kind::<PodCertificateRequest>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let cleaner = PodRequestCleaner { requests };
    setup.add_reconciler("podcertificaterequestcleaner", 1, queue, cleaner);
}

impl Decide for PodRequestCleaner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(request) = self.requests.get(key) else {
            return Vec::new();
        };
        let Some(created) = request.metadata.creation_timestamp.as_ref() else {
            return Vec::new();
        };
        let end = time::seconds_after(created.0, POD_REQUEST_FOR);
        let wait = time::duration_until(end, now);
        if wait.is_zero() {
            vec![Action::delete(request.as_ref())]
        } else {
            vec![Action::Requeue(wait)]
        }
    }
}

impl Decide for CsrCleaner {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(csr) = self.requests.get(key) else {
            return Vec::new();
        };
        let Some(end) = find_deletion_time(&csr) else {
            return Vec::new();
        };
        let wait = time::duration_until(end, now);
        if wait.is_zero() {
            vec![Action::delete(csr.as_ref())]
        } else {
            vec![Action::Requeue(wait)]
        }
    }
}

/// Returns the time at which the first of the limits of a request ends; None without a limit.
fn find_deletion_time(csr: &Csr) -> Option<Timestamp> {
    let status = csr.status.as_ref();
    let conditions = status
        .and_then(|s| s.conditions.as_deref())
        .unwrap_or_default();
    if conditions.is_empty() {
        let created = csr.metadata.creation_timestamp.as_ref()?;
        return Some(time::seconds_after(created.0, PENDING_FOR));
    }
    let certificate = status
        .and_then(|s| s.certificate.as_ref())
        .map(|c| c.0.as_slice())
        .filter(|c| !c.is_empty());
    // A later condition doesn't extend the limit of an earlier one.
    let limits = conditions.iter().filter_map(|condition| {
        let seconds = match condition.type_.as_str() {
            // Its signer may be slow, or not run yet.
            "Approved" if certificate.is_none() => PENDING_FOR,
            "Approved" | "Denied" | "Failed" => DECIDED_FOR,
            _ => return None,
        };
        let updated = condition.last_update_time.as_ref()?;
        Some(time::seconds_after(updated.0, seconds))
    });
    let is_approved = conditions.iter().any(|c| c.type_ == "Approved");
    // An expired certificate is of no use, even if the limit of its condition is later.
    let expiration = certificate
        .filter(|_| is_approved)
        .and_then(find_expiration);
    limits.chain(expiration).min()
}

/// Returns the end of the validity of the first certificate in `pem`, if it can be parsed.
fn find_expiration(pem: &[u8]) -> Option<Timestamp> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    let seconds = block.parse_x509().ok()?.validity().not_after.timestamp();
    Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use k8s_openapi::ByteString;
    use serde_json::json;

    /// Returns the actions for a request that was created and changed at these times.
    fn clean(created: &str, decided: Option<&str>, now: &str) -> Vec<String> {
        let conditions =
            decided.map(|at| json!([{"type": "Denied", "status": "True", "lastUpdateTime": at}]));
        let csr: Csr = serde_json::from_value(
            json!({"metadata": {"name": "c", "creationTimestamp": created},
            "spec": {"request": "", "signerName": "x"}, "status": {"conditions": conditions}}),
        )
        .unwrap();
        let cleaner = CsrCleaner {
            requests: Cache::with_objects(vec![csr]),
        };
        describe_actions(&cleaner.reconcile("c", now.parse().unwrap()))
    }

    #[test]
    fn decided_request_is_deleted_after_an_hour() {
        let (created, decided) = ("2026-01-01T00:00:00Z", Some("2026-01-01T12:00:00Z"));
        assert_eq!(
            clean(created, decided, "2026-01-01T12:30:00Z"),
            ["requeue 1800s"]
        );
        let late = clean(created, decided, "2026-01-01T13:00:00Z");
        assert_eq!(late, ["delete CertificateSigningRequest c"]);
    }

    #[test]
    fn request_of_a_pod_certificate_is_deleted_after_half_an_hour() {
        let request: PodCertificateRequest = serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"signerName": "a.b/c", "podName": "p", "podUID": "u", "serviceAccountName": "s",
                "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u", "stubPKCS10Request": ""}}))
        .unwrap();
        let requests = Cache::with_objects(vec![request]);
        let cleaner = PodRequestCleaner { requests };
        for (now, expect) in [
            ("2026-01-01T00:29:00Z", "requeue 60s"),
            ("2026-01-01T00:30:00Z", "delete PodCertificateRequest r"),
        ] {
            let actions = cleaner.reconcile("n/r", now.parse().unwrap());
            assert_eq!(describe_actions(&actions), [expect], "{now}");
        }
        assert!(
            cleaner
                .reconcile("n/other", Timestamp::UNIX_EPOCH)
                .is_empty()
        );
    }

    #[test]
    fn pending_request_is_deleted_after_a_day() {
        let created = "2026-01-01T00:00:00Z";
        assert_eq!(
            clean(created, None, "2026-01-01T23:00:00Z"),
            ["requeue 3600s"]
        );
        let late = clean(created, None, "2026-01-02T00:00:00Z");
        assert_eq!(late, ["delete CertificateSigningRequest c"]);
    }

    /// Returns the actions at noon for a request with these conditions and this certificate.
    fn clean_at_noon(conditions: &[(&str, &str)], certificate: Option<&[u8]>) -> Vec<String> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, at)| {
                let at = format!("2026-01-02T{at}:00Z");
                json!({"type": kind, "status": "True", "lastUpdateTime": at})
            })
            .collect();
        let mut csr: Csr = serde_json::from_value(
            json!({"metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": "x"}, "status": {"conditions": conditions}}),
        )
        .unwrap();
        csr.status.as_mut().unwrap().certificate = certificate.map(|c| ByteString(c.to_vec()));
        let cleaner = CsrCleaner {
            requests: Cache::with_objects(vec![csr]),
        };
        describe_actions(&cleaner.reconcile("c", "2026-01-02T12:00:00Z".parse().unwrap()))
    }

    #[test]
    fn request_is_deleted_at_the_first_limit_of_its_conditions() {
        let deleted = "delete CertificateSigningRequest c";
        let issued = Some(&b"certificate"[..]);
        for (conditions, certificate, expect) in [
            (
                &[("Denied", "10:59"), ("Failed", "11:30")][..],
                None,
                deleted,
            ),
            (
                &[("Approved", "10:59"), ("Failed", "11:30")],
                issued,
                deleted,
            ),
            (
                &[("Approved", "10:59"), ("Failed", "11:30")],
                None,
                "requeue 1800s",
            ),
            (
                &[("Failed", "11:30"), ("Denied", "11:15")],
                None,
                "requeue 900s",
            ),
        ] {
            let got = clean_at_noon(conditions, certificate);
            assert_eq!(got, [expect], "{conditions:?}");
        }
    }

    #[test]
    fn approved_request_without_certificate_is_kept_for_a_day() {
        let got = clean_at_noon(&[("Approved", "00:00")], None);
        assert_eq!(got, ["requeue 43200s"]);
    }

    #[test]
    fn request_with_only_unknown_conditions_is_kept() {
        assert!(clean_at_noon(&[("Other", "00:00")], None).is_empty());
    }

    #[test]
    fn request_is_deleted_when_its_certificate_has_expired() {
        let key = rcgen::KeyPair::generate().unwrap();
        for (year, expect) in [
            (2025, "delete CertificateSigningRequest c"),
            (2027, "requeue 1800s"),
        ] {
            let mut params = rcgen::CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(2024, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let pem = params.self_signed(&key).unwrap().pem();
            let got = clean_at_noon(&[("Approved", "11:30")], Some(pem.as_bytes()));
            assert_eq!(got, [expect], "{year}");
        }
    }
}
