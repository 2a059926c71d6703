//! PodCertificateRequests (KEP-4317): a kubelet requests a certificate for the key of a pod's
//! volume.

mod issued;

use super::public_key::{KeyProblem, PodKey};
use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use crate::signer_name::{is_kubernetes_signer, validate_signer_name, validate_user_annotations};
use api_meta::certificate_request::{CertificateRequest, RequestError};
use api_meta::names;
use api_meta::tree::{equal, get, int, list, text};
use base64::Engine;
use issued::validate_issued;
use serde_json::{Value, json};

/// Rules of PodCertificateRequests. The spec never changes, and the status changes once.
pub const POD_CERTIFICATE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_request,
    update: |new, old, errors| rules::validate_immutable(new, old, "spec", &Path::ROOT, errors),
    sub: |_, new, old, errors| validate_status(new, old, errors),
};

const LONGEST_UID: usize = 128;
/// Longest key, proof or certificate request, in bytes.
const LONGEST_KEY: usize = 10 * 1024;
const SHORTEST_LIFE: i64 = 3600;
const LONGEST_LIFE: i64 = 91 * 24 * 3600;
/// Limit of the signers of Kubernetes itself.
const LONGEST_LIFE_OF_KUBERNETES: i64 = 24 * 3600;
/// Keys and certificates are not shown, because a message would contain them for each error.
const OMITTED: &str = "<value omitted>";

fn validate_request(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let signer = text(spec, "signerName");
    validate_signer_name(signer, &path.child("signerName"), errors);
    validate_user_annotations(spec, "unverifiedUserAnnotations", &path, errors);
    for (name, uid) in [
        ("podName", "podUID"),
        ("serviceAccountName", "serviceAccountUID"),
        ("nodeName", "nodeUID"),
    ] {
        let value = text(spec, name);
        errors.invalid_each(&path.child(name), value, names::dns1123_subdomain(value));
        let value = text(spec, uid);
        if value.is_empty() {
            errors.invalid(&path.child(uid), value, "must not be empty");
        }
        if value.len() > LONGEST_UID {
            errors.too_long(&path.child(uid), LONGEST_UID);
        }
    }
    let Some(seconds) = int(spec, "maxExpirationSeconds") else {
        return errors.required(&path.child("maxExpirationSeconds"), "must be set");
    };
    validate_life(seconds, signer, &path.child("maxExpirationSeconds"), errors);
    validate_key(spec, &path, errors);
}

fn validate_life(seconds: i64, signer: &str, path: &Path<'_>, errors: &mut Errors) {
    let longest = match is_kubernetes_signer(signer) {
        true => LONGEST_LIFE_OF_KUBERNETES,
        false => LONGEST_LIFE,
    };
    if !(SHORTEST_LIFE..=longest).contains(&seconds) {
        let detail = format!("must be in the range [{SHORTEST_LIFE}, {longest}]");
        errors.invalid(path, seconds, detail);
    }
}

/// Returns the bytes of a field. The decoder has checked the base64.
fn read_bytes(spec: &Value, field: &str) -> Vec<u8> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(text(spec, field));
    decoded.unwrap_or_default()
}

/// Validates the key and the proof that the kubelet has its private half: a signed certificate
/// request, or, from kubelets of v1.35, a key and the signature of the pod's UID.
fn validate_key(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const REQUEST: &str = "stubPKCS10Request";
    let [request, key, proof] =
        [REQUEST, "pkixPublicKey", "proofOfPossession"].map(|field| read_bytes(spec, field));
    match (request.is_empty(), key.is_empty(), proof.is_empty()) {
        (false, true, true) => validate_stub(request, &path.child(REQUEST), errors),
        (true, false, false) => validate_proof(text(spec, "podUID"), &key, &proof, path, errors),
        _ => {
            let detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) \
                          must be set";
            errors.invalid(path, OMITTED, detail);
        }
    }
}

fn validate_stub(der: Vec<u8>, path: &Path<'_>, errors: &mut Errors) {
    if der.len() > LONGEST_KEY {
        return errors.too_long(path, LONGEST_KEY);
    }
    let Ok(request) = CertificateRequest::from_der(der) else {
        return errors.invalid(path, OMITTED, "must be a valid PKCS#10 CSR");
    };
    if let Err(problem) = PodKey::parse(&request.public_key_der) {
        return report_key(problem, "must be a valid PKCS#10 CSR", path, errors);
    }
    match request.verify_signature() {
        Ok(()) => {}
        Err(RequestError::SignatureAlgorithm) => {
            errors.invalid(
                path,
                OMITTED,
                "this server can't verify the algorithm of the signature",
            );
        }
        Err(_) => errors.invalid(path, OMITTED, "invalid signature"),
    }
}

fn validate_proof(uid: &str, key: &[u8], proof: &[u8], path: &Path<'_>, errors: &mut Errors) {
    let (at, proof_at) = (path.child("pkixPublicKey"), path.child("proofOfPossession"));
    if key.len() > LONGEST_KEY {
        return errors.too_long(&at, LONGEST_KEY);
    }
    if proof.len() > LONGEST_KEY {
        return errors.too_long(&proof_at, LONGEST_KEY);
    }
    match PodKey::parse(key) {
        Err(problem) => {
            let detail = "must be a valid PKIX-serialized public key";
            report_key(problem, detail, &at, errors);
        }
        Ok(key) if !key.verifies(uid.as_bytes(), proof) => {
            let detail = "could not verify proof-of-possession signature";
            errors.invalid(&proof_at, OMITTED, detail);
        }
        Ok(_) => {}
    }
}

fn report_key(problem: KeyProblem, malformed: &str, path: &Path<'_>, errors: &mut Errors) {
    match problem {
        KeyProblem::Malformed => errors.invalid(path, OMITTED, malformed),
        KeyProblem::UnknownType => {
            let detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";
            errors.invalid(path, OMITTED, detail);
        }
        // Upstream accepts P521, too.
        KeyProblem::Curve(name) => {
            let detail = "elliptic public keys must use curve P256 or P384";
            errors.invalid(path, format!("curve {name}"), detail);
        }
        KeyProblem::Modulus(bits) => {
            let detail = "RSA keys must have modulus size 3072 or 4096";
            errors.invalid(path, format!("{bits}-bit modulus"), detail);
        }
    }
}

const OUTCOMES: [&str; 3] = ["Denied", "Failed", "Issued"];

/// Validates a write of the signer. It sets one of three outcomes, after which nothing changes: the
/// kubelet may have used the certificate already.
fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let (status, before) = (get(new, "status"), get(old, "status"));
    let path = Path::ROOT.child("status");
    let found = errors.len();
    validate_outcomes(status, &path.child("conditions"), errors);
    validate_conditions(status, &path.child("conditions"), errors);
    if errors.len() > found {
        return;
    }
    let require_equal = |expect: &Value, detail: &str, errors: &mut Errors| {
        if !equal(status, expect) {
            errors.invalid(&path, OMITTED, detail);
        }
    };
    if OUTCOMES.iter().any(|outcome| has_outcome(before, outcome)) {
        let detail = "immutable after PodCertificateRequest is issued, denied, or failed";
        require_equal(before, detail, errors);
    } else if has_outcome(status, "Denied") || has_outcome(status, "Failed") {
        let expect = json!({"conditions": get(status, "conditions")});
        let detail = "non-condition status fields must be empty when denying or failing the \
                      PodCertificateRequest";
        require_equal(&expect, detail, errors);
    } else if has_outcome(status, "Issued") {
        validate_issued(status, get(old, "spec"), &path, errors);
    } else {
        let detail =
            "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"";
        require_equal(before, detail, errors);
    }
}

fn has_outcome(status: &Value, outcome: &str) -> bool {
    let mut all = list(status, "conditions").iter();
    all.any(|c| text(c, "type") == outcome && text(c, "status") == "True")
}

fn validate_outcomes(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut outcomes = 0;
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let (at, outcome) = (path.index(i), text(condition, "type"));
        if !OUTCOMES.contains(&outcome) {
            errors.not_supported(&at.child("type"), outcome, &OUTCOMES);
            continue;
        }
        outcomes += 1;
        if outcomes > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errors.invalid(&at.child("type"), outcome, detail);
        }
        let value = text(condition, "status");
        if value != "True" {
            errors.not_supported(&at.child("status"), value, &["True"]);
        }
    }
}

#[cfg(test)]
mod tests;
