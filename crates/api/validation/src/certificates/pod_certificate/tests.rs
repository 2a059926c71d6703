#![allow(clippy::unwrap_used)]
use super::spec::LONGEST_KEY;
use super::*;
use crate::certificates::public_key::tests::vector;
use api_meta::time;
use base64::Engine;
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, KeyPair, SanType};
use std::time::Duration;

fn encode(bytes: &[u8]) -> Value {
    base64::engine::general_purpose::STANDARD
        .encode(bytes)
        .into()
}

fn spec() -> Value {
    json!({"signerName": "example.com/pods", "podName": "p", "podUID": "uid-1",
        "serviceAccountName": "default", "serviceAccountUID": "uid-2", "nodeName": "n",
        "nodeUID": "uid-3", "maxExpirationSeconds": 86400,
        "stubPKCS10Request": encode(&vector("ed.request"))})
}

/// Returns the errors of a new request whose spec has these members, by field.
fn find_problems(changes: &Value) -> Vec<(String, String)> {
    let mut spec = spec();
    for (name, value) in changes.as_object().unwrap() {
        spec[name.as_str()] = value.clone();
    }
    let mut errors = Errors::default();
    validate_request(&json!({"spec": spec}), &mut errors);
    let problem = |error: crate::field::FieldError| (error.field, error.detail);
    errors.0.into_iter().map(problem).collect()
}

#[test]
fn fields_of_the_spec_are_checked() {
    let long = "u".repeat(129);
    let uids = [("podUID", "spec.podUID"), ("nodeUID", "spec.nodeUID")];
    for (field, at) in uids {
        for value in ["", &long] {
            assert_eq!(find_problems(&json!({field: value}))[0].0, at, "{value}");
        }
    }
    for (changes, fields) in [
        (json!({}), &[][..]),
        (json!({"signerName": "pods"}), &["spec.signerName"]),
        (
            json!({"podName": "A", "nodeName": ""}),
            &["spec.podName", "spec.nodeName"],
        ),
        (
            json!({"serviceAccountName": "a/b"}),
            &["spec.serviceAccountName"],
        ),
        (
            json!({"maxExpirationSeconds": 3599}),
            &["spec.maxExpirationSeconds"],
        ),
        (json!({"maxExpirationSeconds": 91 * 86400}), &[]),
        (
            json!({"maxExpirationSeconds": 91 * 86400 + 1}),
            &["spec.maxExpirationSeconds"],
        ),
        (
            json!({"maxExpirationSeconds": 86401, "signerName": "kubernetes.io/kube-apiserver-client-pod"}),
            &["spec.maxExpirationSeconds"],
        ),
        // Without a life, the key is not checked.
        (
            json!({"maxExpirationSeconds": null, "stubPKCS10Request": null}),
            &["spec.maxExpirationSeconds"],
        ),
        (
            json!({"unverifiedUserAnnotations": {"a": "b"}}),
            &["spec.unverifiedUserAnnotations"],
        ),
        (json!({"unverifiedUserAnnotations": {"e.io/a": "b"}}), &[]),
    ] {
        let found: Vec<String> = find_problems(&changes).into_iter().map(|p| p.0).collect();
        assert_eq!(found, fields, "{changes}");
    }
}

#[test]
fn kubelet_proves_that_it_has_the_key() {
    let request = |name: &str| json!({"stubPKCS10Request": encode(&vector(name))});
    let proof = |key: &str, signature: &str| {
        json!({"stubPKCS10Request": null, "pkixPublicKey": encode(&vector(key)),
            "proofOfPossession": encode(&vector(signature))})
    };
    let mut forged = vector("rsa3072.request");
    *forged.last_mut().unwrap() ^= 1;
    let both = json!({"pkixPublicKey": "AAAA"});
    let replayed = {
        let mut spec = proof("ecP-256.key", "ecP-256.sig");
        spec["podUID"] = json!("uid-2");
        spec
    };
    for (changes, expect) in [
        (request("rsa3072.request"), ""),
        (
            request("rsa2048.request"),
            "RSA keys must have modulus size 3072 or 4096",
        ),
        (
            request("ecP-521.request"),
            "elliptic public keys must use curve P256 or P384",
        ),
        (
            json!({"stubPKCS10Request": encode(&forged)}),
            "invalid signature",
        ),
        (
            json!({"stubPKCS10Request": "AAAA"}),
            "must be a valid PKCS#10 CSR",
        ),
        (
            json!({"stubPKCS10Request": encode(&[0; LONGEST_KEY + 1])}),
            "may not be more than 10240 bytes",
        ),
        (
            json!({"stubPKCS10Request": ""}),
            "exactly one of (stubPKCS10Request) or",
        ),
        (both, "exactly one of (stubPKCS10Request) or"),
        (proof("rsa3072.key", "rsa3072.max"), ""),
        (proof("ecP-256.key", "ecP-256.sig"), ""),
        (proof("ed.key", "ed.sig"), ""),
        (
            proof("ed.key", "ecP-256.sig"),
            "could not verify proof-of-possession signature",
        ),
        (replayed, "could not verify proof-of-possession signature"),
        (
            proof("ed.sig", "ed.sig"),
            "must be a valid PKIX-serialized public key",
        ),
        (
            proof("eck1.key", "ed.sig"),
            "elliptic public keys must use curve",
        ),
    ] {
        let found = find_problems(&changes);
        match expect {
            "" => assert_eq!(found, [], "{changes}"),
            _ => assert!(
                found.len() == 1 && found[0].1.starts_with(expect),
                "{found:?} {expect}"
            ),
        }
    }
}

/// A signer with the key of a request.
struct Signer {
    key: KeyPair,
    request: Value,
    begin: Timestamp,
}

impl Signer {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default()
            .serialize_request(&key)
            .unwrap();
        Signer {
            request: encode(request.der()),
            begin: time::parse(&time::now()).unwrap(),
            key,
        }
    }

    /// Issues a certificate for this many minutes; returns the status.
    fn issue(&self, minutes: i64, change: impl FnOnce(&mut CertificateParams)) -> Value {
        let at = |after: i64| self.begin + SignedDuration::from_mins(after);
        let date = |after: i64| {
            let seconds = u64::try_from(at(after).as_second()).unwrap();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date(0), date(minutes));
        change(&mut params);
        let certificate = params.self_signed(&self.key).unwrap();
        let [begin, middle, end] = [0, minutes / 2, minutes].map(|after| time::format(at(after)));
        json!({"conditions": [condition("Issued")], "certificateChain": certificate.pem(),
            "notBefore": begin, "notAfter": end, "beginRefreshAt": middle})
    }

    /// Returns the field and the detail of the first error of a write.
    fn write(&self, old: &Value, new: &Value) -> String {
        let mut spec = spec();
        spec["stubPKCS10Request"] = self.request.clone();
        let object = |status: &Value| json!({"spec": spec, "status": status});
        let mut errors = Errors::default();
        validate_status(&object(new), &object(old), &mut errors);
        let first = errors.0.into_iter().next();
        first.map_or_else(String::new, |error| {
            format!("{}: {}", error.field, error.detail)
        })
    }
}

fn condition(kind: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

fn with(status: &Value, field: &str, value: Value) -> Value {
    let mut status = status.clone();
    status[field] = value;
    status
}

#[test]
fn signer_sets_one_outcome() {
    let signer = Signer::new();
    let issued = signer.issue(1440, |_| {});
    let denied = json!({"conditions": [condition("Denied")]});
    let mut undecided = denied.clone();
    undecided["conditions"][0]["status"] = json!("False");
    let both = json!({"conditions": [condition("Denied"), condition("Failed")]});
    let final_detail = "status: immutable after PodCertificateRequest is issued, denied, or failed";
    let none = json!({});
    for (old, new, expect) in [
        (&none, &none, ""),
        (&none, &issued, ""),
        (&none, &denied, ""),
        (&none, &json!({"conditions": [condition("Failed")]}), ""),
        (
            &none,
            &undecided,
            "status.conditions[0].status: supported values: \"True\"",
        ),
        (
            &none,
            &both,
            "status.conditions[1].type: There may be at most one condition",
        ),
        (
            &none,
            &json!({"conditions": [condition("Approved")]}),
            "status.conditions[0].type: supported",
        ),
        (
            &none,
            &json!({"certificateChain": "x"}),
            "status: status is immutable unless",
        ),
        (
            &none,
            &with(&denied, "notAfter", issued["notAfter"].clone()),
            "status: non-condition status",
        ),
        (&denied, &denied, ""),
        (&denied, &issued, final_detail),
        (&denied, &none, final_detail),
        (
            &issued,
            &with(&issued, "beginRefreshAt", issued["notAfter"].clone()),
            final_detail,
        ),
    ] {
        let found = signer.write(old, new);
        assert_eq!(found.is_empty(), expect.is_empty(), "{found}: {new}");
        assert!(found.starts_with(expect), "{found}: {new}");
    }
}

#[test]
fn certificate_is_for_the_key_and_the_times() {
    let signer = Signer::new();
    let issued = signer.issue(1440, |_| {});
    let chain = issued["certificateChain"].as_str().unwrap();
    let names = |names: Vec<SanType>| signer.issue(1440, |p| p.subject_alt_names = names);
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let mail = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
    let after = |minutes: i64| {
        json!(time::format(
            signer.begin + SignedDuration::from_mins(minutes)
        ))
    };
    let early = |minutes: i64| Signer {
        begin: signer.begin - SignedDuration::from_mins(minutes),
        key: KeyPair::from_pem(&signer.key.serialize_pem()).unwrap(),
        request: signer.request.clone(),
    };
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let key = chain.replace("CERTIFICATE", "PRIVATE KEY");
    let more = |text: &str| with(&issued, "certificateChain", format!("{chain}{text}").into());
    for (status, expect) in [
        (more(chain), ""),
        (names(vec![dns("a.b"), mail("a@b.c")]), ""),
        (
            more(broken),
            "status.certificateChain: intermediate certificate does not parse",
        ),
        (
            more(&key),
            "status.certificateChain: issued certificate chain must consist entirely",
        ),
        (
            with(&issued, "certificateChain", json!("")),
            "status.certificateChain: issued certificate chain must contain",
        ),
        (
            with(&issued, "certificateChain", json!(key)),
            "status.certificateChain: issued certificate chain must consist",
        ),
        (
            with(&issued, "certificateChain", json!(broken)),
            "status.certificateChain: leaf certificate does not parse",
        ),
        (
            with(
                &issued,
                "certificateChain",
                json!("x".repeat(LONGEST_KEY * 10 + 1)),
            ),
            "status.certificateChain: may not be more",
        ),
        (
            Signer::new().issue(1440, |_| {}),
            "status.certificateChain: leaf certificate was not issued",
        ),
        (
            names(vec![dns("a..b")]),
            "status.certificateChain: leaf certificate's DNSName should not contain '..'",
        ),
        (
            names(vec![dns(".a")]),
            "status.certificateChain: leaf certificate's DNSName should not start",
        ),
        (
            names(vec![dns("")]),
            "status.certificateChain: leaf certificate should not contain empty DNSName",
        ),
        (
            names(vec![mail("x")]),
            "status.certificateChain: leaf certificate should not contain invalid Email",
        ),
        (
            with(&issued, "notBefore", Value::Null),
            "status.notBefore: must be present",
        ),
        (
            with(&issued, "notAfter", Value::Null),
            "status.notAfter: must be present",
        ),
        (
            with(&issued, "beginRefreshAt", Value::Null),
            "status.beginRefreshAt: must be present",
        ),
        (
            with(&issued, "notBefore", after(1)),
            "status.notBefore: must be set to the NotBefore time",
        ),
        (
            with(&issued, "notAfter", after(1)),
            "status.notAfter: must be set to the NotAfter time",
        ),
        (early(4).issue(1440, |_| {}), ""),
        (
            early(6).issue(1440, |_| {}),
            "status.notBefore: must be set to within 5 minutes",
        ),
        (
            early(-6).issue(1440, |_| {}),
            "status.notBefore: must be set to within 5 minutes",
        ),
        (
            signer.issue(59, |_| {}),
            "status.certificateChain: leaf certificate lifetime must be >= 1 hour",
        ),
        (
            signer.issue(1441, |_| {}),
            "status.certificateChain: leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)",
        ),
        (with(&issued, "beginRefreshAt", after(10)), ""),
        (
            with(&issued, "beginRefreshAt", after(9)),
            "status.beginRefreshAt: must be at least 10 minutes after",
        ),
        (
            with(&issued, "beginRefreshAt", after(1431)),
            "status.beginRefreshAt: must be at least 10 minutes before",
        ),
    ] {
        let found = signer.write(&json!({}), &status);
        assert_eq!(found.is_empty(), expect.is_empty(), "{found}: {expect}");
        assert!(found.starts_with(expect), "{found}: {expect}");
    }
}
