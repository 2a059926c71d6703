//! CertificateSigningRequests.

use crate::dispatch::Rules;
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::tree::{get, int, list, text, texts};
use api_meta::names;
use base64::Engine;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

/// CertificateSigningRequests. Any name goes.
pub const SIGNING_REQUEST: Rules = Rules { name: NameRule::Own, create: request, update: |_, _, _| {}, sub };

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

fn request(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if !is_request(text(spec, "request")) {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid(&path.child("request"), get(spec, "request").clone(), detail);
    }
    let usages = texts(spec, "usages");
    let at = path.child("usages");
    if usages.is_empty() {
        errors.required(&at, "usages must contain at least one value");
    }
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            errors.not_supported(&at.index(i), *usage, &USAGES);
        }
        if usages.iter().take(i).any(|u| u == usage) {
            errors.duplicate(&at.index(i), *usage);
        }
    }
    signer(text(spec, "signerName"), &path.child("signerName"), errors);
    if let Some(n) = int(spec, "expirationSeconds").filter(|n| *n < 600) {
        errors.invalid(
            &path.child("expirationSeconds"),
            n,
            "may not specify a duration less than 600 seconds (10 minutes)",
        );
    }
}

/// What approval and status may say: one decision at most, which stays, and a certificate that is one.
fn sub(_: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let (status, at) = (get(new, "status"), Path::ROOT.child("status"));
    let path = at.child("conditions");
    let conditions = list(status, "conditions");
    let said = |all: &[Value], kind: &str| all.iter().any(|condition| text(condition, "type") == kind);
    for kind in ["Approved", "Denied", "Failed"] {
        if said(list(get(old, "status"), "conditions"), kind) && !said(conditions, kind) {
            errors.forbidden(&path, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    for (i, condition) in conditions.iter().enumerate() {
        let (at, kind) = (path.index(i), text(condition, "type"));
        if kind.is_empty() {
            errors.required(&at.child("type"), "");
        }
        let value = text(condition, "status");
        if value.is_empty() {
            errors.required(&at.child("status"), "");
        } else if !["False", "True", "Unknown"].contains(&value) {
            errors.not_supported(&at.child("status"), value, &["False", "True", "Unknown"]);
        } else if matches!(kind, "Approved" | "Denied" | "Failed") && value != "True" {
            errors.not_supported(&at.child("status"), value, &["True"]);
        }
        if conditions.iter().take(i).any(|other| text(other, "type") == kind) {
            errors.duplicate(&at.child("type"), kind);
        }
    }
    if said(conditions, "Approved") && said(conditions, "Denied") {
        errors.invalid(&path, "Denied", "Approved and Denied conditions are mutually exclusive");
    }
    let certificate = text(status, "certificate");
    if !certificate.is_empty() && certificate != text(get(old, "status"), "certificate") && !is_certificate(certificate)
    {
        errors.invalid(
            &at.child("certificate"),
            "<certificate data>",
            "must contain at least one CERTIFICATE PEM block",
        );
    }
}

fn is_certificate(text: &str) -> bool {
    let Ok(pem) = base64::engine::general_purpose::STANDARD.decode(text) else { return false };
    let mut blocks = x509_parser::pem::Pem::iter_from_buffer(&pem).peekable();
    blocks.peek().is_some()
        && blocks.all(|block| block.is_ok_and(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok()))
}

fn is_request(text: &str) -> bool {
    let Ok(pem) = base64::engine::general_purpose::STANDARD.decode(text) else { return false };
    let Ok((_, block)) = x509_parser::pem::parse_x509_pem(&pem) else { return false };
    let known = matches!(block.label.as_str(), "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST");
    known && X509CertificationRequest::from_der(&block.contents).is_ok()
}

fn signer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((domain, rest)) = name.split_once('/') else {
        errors.invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    };
    let mut problems = names::dns1123_subdomain(domain);
    if problems.is_empty() && domain.split('.').count() < 2 {
        problems.push("should be a domain with at least two segments separated by dots".into());
    }
    for segment in rest.split('.') {
        problems.extend(names::dns1123_label(segment));
    }
    errors.invalid_each(path, name, problems);
}
