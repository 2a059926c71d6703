//! Names of signers of certificates, and what a pod passes on to them.

use crate::field::{Errors, Path, go_quote};
use crate::metadata::ANNOTATIONS_LIMIT;
use crate::rules::NameCheck;
use api_meta::names;
use api_meta::tree::entries;
use serde_json::Value;

/// The shortest life of a certificate for a pod, in seconds.
pub(crate) const SHORTEST_LIFE: i64 = 3600;
/// The longest life of one of any signer, in seconds.
pub(crate) const LONGEST_LIFE: i64 = 91 * 24 * 3600;
/// The longest life of one of a signer of Kubernetes itself, in seconds.
const LONGEST_LIFE_OF_KUBERNETES: i64 = 24 * 3600;

/// Returns the longest life of a certificate of this signer, in seconds.
pub(crate) fn find_longest_life(signer: &str) -> i64 {
    match is_kubernetes_signer(signer) {
        true => LONGEST_LIFE_OF_KUBERNETES,
        false => LONGEST_LIFE,
    }
}

/// Returns whether a signer belongs to Kubernetes itself.
fn is_kubernetes_signer(name: &str) -> bool {
    let domain = name.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Validates the name of a signer: a domain and a path of subdomains.
pub(crate) fn validate_signer_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let [domain, rest] = name.split('/').collect::<Vec<_>>()[..] else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(path, name, detail);
        return;
    };
    if domain.len() > 253 {
        errors.too_long(path, 253);
    }
    validate_labels(domain, names::dns1123_label, path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, domain, detail);
    }
    validate_labels(rest, names::dns1123_subdomain, path, errors);
    // Room for a domain, a subdomain and a label in the path, and their separators.
    const LONGEST: usize = 253 + (253 + 63 + 1) + 1;
    if name.len() > LONGEST {
        errors.too_long(path, LONGEST);
    }
}

fn validate_labels(part: &str, check: NameCheck, path: &Path<'_>, errors: &mut Errors) {
    // Only the first bad label is reported: the messages would be equal.
    let Some(label) = part.split('.').find(|label| !check(label).is_empty()) else {
        return;
    };
    for problem in check(label) {
        let label = go_quote(label);
        errors.invalid(path, part, format!("validating label {label}: {problem}"));
    }
}

/// Validates a field with annotations for the signer, which the pod's author chooses.
pub(crate) fn validate_user_annotations(
    source: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let path = &path.child(field);
    let mut size = 0;
    for (key, value) in entries(source, field) {
        size += key.len() + value.as_str().unwrap_or_default().len();
        let key = key.to_ascii_lowercase();
        let problems = names::qualified_name(&key);
        // The signer reads them, so the domain says who defined the key.
        if problems.is_empty() && !key.contains('/') {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.invalid(path, key.as_str(), detail);
        }
        errors.invalid_each(path, &key, problems);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(path, ANNOTATIONS_LIMIT);
    }
}
