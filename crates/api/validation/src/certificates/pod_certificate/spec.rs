//! The spec of a request: the pod, its key, and the proof that the kubelet has the private half.

use crate::certificates::public_key::{KeyProblem, PodKey};
use crate::field::{Errors, Path};
use crate::signer_name::{
    SHORTEST_LIFE, find_longest_life, validate_signer_name, validate_user_annotations,
};
use api_meta::certificate_request::{CertificateRequest, RequestError};
use api_meta::names;
use api_meta::tree::{get, int, text};
use base64::Engine;
use serde_json::Value;

/// Longest UID in bytes, as upstream.
const LONGEST_UID: usize = 128;
/// Longest key, proof or certificate request, in bytes.
pub(super) const LONGEST_KEY: usize = 10 * 1024;
/// Keys and certificates are not shown, because a message would contain them for each error.
pub(super) const OMITTED: &str = "<value omitted>";

pub(super) fn validate_request(object: &Value, errors: &mut Errors) {
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
    let longest = find_longest_life(signer);
    if !(SHORTEST_LIFE..=longest).contains(&seconds) {
        let detail = format!("must be in the range [{SHORTEST_LIFE}, {longest}]");
        errors.invalid(path, seconds, detail);
    }
}

/// Returns the bytes of a field. The decoder has checked the base64.
pub(super) fn read_bytes(spec: &Value, field: &str) -> Vec<u8> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(text(spec, field));
    decoded.unwrap_or_default()
}

/// Validates the key and the proof that the kubelet has its private half. The proof is a signed
/// certificate request. Kubelets of v1.35 send a key and a signature of the pod's UID instead.
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
