//! CertificateSigningRequests, ClusterTrustBundles and PodCertificateRequests.

mod pod_certificate;
mod public_key;
mod trust_bundle;

pub use pod_certificate::POD_CERTIFICATE;
pub use trust_bundle::TRUST_BUNDLE;

use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules;
use crate::signer_name::validate_signer_name;
use api_meta::certificate_request::{CertificateRequest, RequestError};
use api_meta::pem::read_blocks;
use api_meta::tree::{get, int, list, text, texts};
use base64::Engine;
use serde_json::Value;
use std::collections::HashSet;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Rules of CertificateSigningRequests. Upstream accepts any name that is valid in a path. Control
/// characters are rejected here, because names are printed to terminals.
pub const SIGNING_REQUEST: Rules = Rules {
    name: NameRule::PrintablePathSegment,
    create: |object, errors| validate_signing_request(object, &Value::Null, errors),
    update: |new, old, errors| validate_signing_request(new, get(old, "spec"), errors),
    sub: validate_subresource,
};

/// Signer of v1beta1 that signs any subject.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Validates a request. The spec can't change, and is checked again at each write, as upstream.
/// Usages and the legacy signer of `old`, the spec before, may stay. So may a PEM
/// that only this server rejects: a request that a server of upstream has stored can be denied.
fn validate_signing_request(object: &Value, old: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    // The signature proves that the client holds the private key. Without the check, a client could
    // request a certificate for a key of another.
    let request = text(spec, "request");
    let is_stored = !old.is_null() && request == text(old, "request");
    if let Err(error) = validate_pem_request(request)
        && !(is_stored && is_accepted_upstream(&error))
    {
        errors.invalid(
            &path.child("request"),
            get(spec, "request").clone(),
            error.to_string(),
        );
    }
    let usages = texts(spec, "usages");
    let at = path.child("usages");
    if usages.is_empty() {
        errors.required(&at, "");
    }
    validate_usages(&usages, &texts(old, "usages"), &at, errors);
    let (signer, at) = (text(spec, "signerName"), path.child("signerName"));
    if signer != LEGACY_SIGNER || text(old, "signerName") != LEGACY_SIGNER {
        validate_requested_signer(signer, &at, errors);
    }
    // A client needs time to renew. The same minimum applies to tokens.
    if let Some(n) = int(spec, "expirationSeconds").filter(|n| *n < 600) {
        errors.invalid(
            &path.child("expirationSeconds"),
            n,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
}

/// Validates usages. Unknown and repeated ones may stay if the old request has such.
fn validate_usages(usages: &[&str], old: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let is_repeated = |all: &[&str]| all.iter().collect::<HashSet<_>>().len() < all.len();
    let had_unknown = old.iter().any(|usage| !USAGES.contains(usage));
    let had_repeated = is_repeated(old);
    let mut seen = HashSet::new();
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) && !had_unknown {
            errors.not_supported(&path.index(i), *usage, &USAGES);
        }
        // The signer compares usages as a set with those that it allows.
        if !seen.insert(*usage) && !had_repeated {
            errors.duplicate(&path.index(i), *usage);
        }
    }
}

/// Validates a write to approval or status: decisions are final, and there is at most one.
fn validate_subresource(_: &str, new: &Value, old: &Value, errors: &mut Errors) {
    validate_signing_request(new, get(old, "spec"), errors);
    let (status, before) = (get(new, "status"), get(old, "status"));
    let at = Path::ROOT.child("status");
    let path = at.child("conditions");
    validate_request_conditions(list(status, "conditions"), before, &path, errors);
    for kind in ["Approved", "Denied", "Failed"] {
        // A signer may have acted on the decision already, so it is final.
        if count_conditions(status, kind) < count_conditions(before, kind) {
            errors.forbidden(
                &path,
                format!("updates may not remove a condition of type {kind:?}"),
            );
        }
    }
    validate_issued_certificate(
        text(status, "certificate"),
        text(before, "certificate"),
        &at.child("certificate"),
        errors,
    );
}

fn count_conditions(status: &Value, kind: &str) -> usize {
    let all = list(status, "conditions").iter();
    all.filter(|condition| text(condition, "type") == kind)
        .count()
}

/// Validates conditions. Types that are absent or repeated in the old status may stay.
fn validate_request_conditions(all: &[Value], old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kinds: Vec<&str> = all.iter().map(|c| text(c, "type")).collect();
    let before = list(old, "conditions");
    let had_repeated = before
        .iter()
        .any(|c| count_conditions(old, text(c, "type")) > 1);
    let had_both = count_conditions(old, "Approved") > 0 && count_conditions(old, "Denied") > 0;
    let mut earlier = HashSet::new();
    for (i, (condition, kind)) in all.iter().zip(&kinds).enumerate() {
        let at = path.index(i);
        // An old condition without a type may stay, or nothing could be approved any more.
        if kind.is_empty() && count_conditions(old, "") == 0 {
            errors.required(&at.child("type"), "");
        }
        // A decision exists or does not exist. `Approved: False` could be read as a denial.
        let allowed: &[&str] = match *kind {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        rules::validate_required_one_of(condition, "status", allowed, &at, errors);
        let other = match *kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "none",
        };
        // The later of two conditions has the error, so the order of the list decides which one it
        // names.
        if !had_both && earlier.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid(path, *kind, detail);
        }
        if !earlier.insert(*kind) && !had_repeated {
            errors.duplicate(&at.child("type"), *kind);
        }
    }
}

/// Only a new certificate is parsed: a stored one may have been written by an older release with
/// weaker rules.
fn validate_issued_certificate(new: &str, old: &str, path: &Path<'_>, errors: &mut Errors) {
    if new == old {
        return;
    }
    // The value is not shown, since the message would contain the whole certificate. If the old one
    // was malformed, the new one may be, too.
    if !new.is_empty()
        && let Some(problem) = find_certificate_problem(new)
        && (old.is_empty() || find_certificate_problem(old).is_none())
    {
        errors.invalid(path, "<certificate data>", problem);
    }
    // Clients take the first certificate that appears. A later one would never be used, but be
    // audited as issued.
    if !old.is_empty() {
        errors.forbidden(path, "updates may not modify existing certificate content");
    }
}

/// Returns why an encoded text is not a chain of certificates.
fn find_certificate_problem(text: &str) -> Option<String> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    let mut is_empty = true;
    for block in read_blocks(&decoded.unwrap_or_default()) {
        // Clients take the first block as their certificate and send the rest as the chain.
        if block.label != "CERTIFICATE" {
            let label = crate::field::go_quote(&block.label);
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found {label}"
            ));
        }
        // Headers may contain text that other parsers read as a block of its own.
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        if let Some(problem) = find_block_problem(&block.contents) {
            return Some(problem.to_owned());
        }
        is_empty = false;
    }
    is_empty.then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}

/// Returns why a block does not consist of certificates.
fn find_block_problem(mut der: &[u8]) -> Option<&'static str> {
    if der.is_empty() {
        return Some("found CERTIFICATE PEM block containing 0 certificates");
    }
    while !der.is_empty() {
        match X509Certificate::from_der(der) {
            Ok((rest, _)) => der = rest,
            Err(_) => return Some("x509: malformed certificate"),
        }
    }
    None
}

fn validate_pem_request(text: &str) -> Result<(), RequestError> {
    let pem = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|_| RequestError::BlockType)?;
    match CertificateRequest::from_pem(&pem)?.verify_signature() {
        // Signers of other domains may support algorithms that this library does not.
        Err(RequestError::SignatureAlgorithm) => Ok(()),
        verdict => verdict,
    }
}

/// Returns whether upstream accepts a request with this error, at a write too.
fn is_accepted_upstream(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::SeveralBlocks | RequestError::SubjectValue
    )
}

fn validate_requested_signer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    // This signer accepts any subject and guarantees no trust. The API v1 excludes it for new
    // requests.
    if name == LEGACY_SIGNER {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(path, name, detail);
    } else {
        // RBAC grants signers by name, with `domain/*` for all of a domain.
        validate_signer_name(name, path, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// CN=user, then one relative distinguished name of O=group-a and O=system:masters.
    const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHzMIGaAgEAMDgxDTALBgNVBAMMBHVzZXIxJzAOBgNVBAoMB2dyb3VwLWEwFQYD
VQQKDA5zeXN0ZW06bWFzdGVyczBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABECS
iJlc8r7HG8rNv6C9Gh8eckLIldUhg1tiU/m0e2jzdZ5fheLG9oJhR5ouoe5ijxW+
OPRzsnhtrmfoUH6z4KugADAKBggqhkjOPQQDAgNIADBFAiEA5R5X3GT1rTFNHCuT
sJVPQ4533sjRlHmxP6+kSPVkXLgCIFVrWKN6lqrYnZZoIjSEoHv5/wIT37BfMLoW
HYEj4D05
-----END CERTIFICATE REQUEST-----
";

    fn problems(request: &str, signer: &str) -> Vec<String> {
        let mut errors = Errors::default();
        let encoded = base64::engine::general_purpose::STANDARD.encode(request);
        let spec = json!({"request": encoded, "signerName": signer, "usages": ["client auth"]});
        super::validate_signing_request(&json!({"spec": spec}), &Value::Null, &mut errors);
        errors.0.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn request_with_a_hidden_block_is_refused() {
        assert_eq!(
            problems(REQUEST, "example.com/signer"),
            Vec::<String>::new()
        );
        let hidden = format!(" {REQUEST}{REQUEST}");
        assert_eq!(problems(&hidden, "example.com/signer"), ["spec.request"]);
    }

    /// A server of upstream has stored it.
    #[test]
    fn stored_request_with_a_hidden_block_can_be_denied_and_not_replaced() {
        let encode = |request: String| base64::engine::general_purpose::STANDARD.encode(request);
        let object = |request: String| {
            let spec = json!({"request": encode(request), "signerName": "example.com/signer", "usages": ["client auth"]});
            json!({"spec": spec})
        };
        let hidden = || format!("{REQUEST}{REQUEST}");
        let old = object(hidden());
        let mut denied = old.clone();
        let condition = json!({"type": "Denied", "status": "True", "reason": "TwoBlocks"});
        denied["status"] = json!({"conditions": [condition]});
        for (case, new, refused) in [
            ("denied", denied, vec![]),
            (
                "replaced",
                object(format!("{}\n", hidden())),
                vec!["spec.request"],
            ),
        ] {
            let mut errors = Errors::default();
            validate_subresource("approval", &new, &old, &mut errors);
            let fields: Vec<_> = errors.0.into_iter().map(|error| error.field).collect();
            assert_eq!(fields, refused, "{case}");
        }
    }

    #[test]
    fn request_without_a_block_is_refused() {
        assert_eq!(problems("", "example.com/signer"), ["spec.request"]);
    }

    #[test]
    fn legacy_signer_is_refused() {
        assert_eq!(problems(REQUEST, LEGACY_SIGNER), ["spec.signerName"]);
    }
}
