//! Names of signers of certificates.

use crate::field::{Errors, Path, go_quote};
use crate::rules::NameCheck;
use api_meta::names;

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
