//! Projections of trust bundles and of certificates for the pod.

use super::projected_files::ProjectedFiles;
use super::relative_path::validate_non_reserved_path;
use crate::field::{Errors, Path};
use crate::selector;
use crate::signer_name::{
    SHORTEST_LIFE, find_longest_life, validate_signer_name, validate_user_annotations,
};
use api_meta::names;
use api_meta::tree::{get, has, int, opt_text, text};
use serde_json::Value;

const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];

/// Validates a `clusterTrustBundle` source: by name, or by signer and labels.
pub(crate) fn validate_trust_bundle<'a>(
    source: &'a Value,
    files: &mut ProjectedFiles<'a>,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match (opt_text(source, "name"), opt_text(source, "signerName")) {
        (Some(_), Some(_)) => {
            let detail = "only one of name and signerName may be used";
            errors.invalid(path, source.clone(), detail);
        }
        (Some(name), None) => {
            let at = path.child("name");
            if name.is_empty() {
                errors.required(&at, "must be a valid object name");
            }
            for problem in find_bundle_name_problems(name) {
                let detail = format!("not a valid clustertrustbundlename: {problem}");
                errors.invalid(&at, name, detail);
            }
            if has(source, "labelSelector") {
                let shown = get(source, "labelSelector").clone();
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid(&path.child("labelSelector"), shown, detail);
            }
        }
        (None, Some(signer)) => {
            let at = path.child("signerName");
            if signer.is_empty() {
                errors.required(&at, "must be a valid signer name");
            }
            validate_signer_name(signer, &at, errors);
            let at = path.child("labelSelector");
            selector::validate_label_selector(get(source, "labelSelector"), &at, errors);
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let (file, at) = (text(source, "path"), path.child("path"));
    if file.is_empty() {
        errors.required(&at, "");
    }
    validate_non_reserved_path(file, &at, errors);
    files.add(file, file, volume, errors);
}

/// Returns the problems of a bundle's name, which begins with that of its signer, if it has one.
fn find_bundle_name_problems(name: &str) -> Vec<String> {
    let Some((prefix, rest)) = name.rsplit_once(':') else {
        return names::dns1123_subdomain(name);
    };
    // The slash of the signer's name is a colon in that of the bundle.
    if prefix.contains('/') {
        let (signer, prefix) = (prefix.replace(':', "/"), prefix.replace('/', ":"));
        let detail = "must be named with prefix";
        return vec![format!(
            "ClusterTrustBundle for signerName {signer} {detail} {prefix}:"
        )];
    }
    names::dns1123_subdomain(rest)
}

/// Validates a `podCertificate` source.
pub(crate) fn validate_pod_certificate<'a>(
    source: &'a Value,
    files: &mut ProjectedFiles<'a>,
    volume: &Path<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let signer = text(source, "signerName");
    validate_signer_name(signer, &path.child("signerName"), errors);
    validate_user_annotations(source, "userAnnotations", path, errors);
    let key_type = text(source, "keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&path.child("keyType"), key_type, &KEY_TYPES);
    }
    if let Some(seconds) = int(source, "maxExpirationSeconds") {
        validate_certificate_life(seconds, signer, &path.child("maxExpirationSeconds"), errors);
    }
    let mut count = 0;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let file = text(source, field);
        if !file.is_empty() {
            count += 1;
            validate_non_reserved_path(file, &path.child(field), errors);
            files.add(file, file, volume, errors);
        }
    }
    if count == 0 {
        let detail =
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

fn validate_certificate_life(seconds: i64, signer: &str, path: &Path<'_>, errors: &mut Errors) {
    if seconds < SHORTEST_LIFE {
        let detail = format!("if provided, maxExpirationSeconds must be >= {SHORTEST_LIFE}");
        errors.invalid(path, seconds, detail);
    }
    let longest = find_longest_life(signer);
    if seconds > longest {
        let detail = format!("if provided, maxExpirationSeconds must be <= {longest}");
        errors.invalid(path, seconds, detail);
    }
}
