//! Names of a custom resource.

use crate::field::{Errors, Path};
use api_meta::names::dns1035_label;
use api_meta::tree::{text, texts};
use serde_json::Value;

/// Validates the names in `spec`, of which some are required.
pub(super) fn validate_required_names(all: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(all, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    validate_names(all, path, errors);
}

/// Validates the names that are present.
pub(super) fn validate_names(all: &Value, path: &Path<'_>, errors: &mut Errors) {
    // The plural is a segment of URLs, and kubectl resolves all these names in lower case.
    for field in ["plural", "singular"] {
        validate_label(text(all, field), &path.child(field), errors);
    }
    for field in ["kind", "listKind"] {
        let name = text(all, field);
        let problems = dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            );
            errors.invalid(&path.child(field), name, detail);
        }
    }
    validate_labels(all, "shortNames", path, errors);
    // Decoders find the type by the kind, so a list and its items need different ones.
    if !text(all, "kind").is_empty() && text(all, "kind") == text(all, "listKind") {
        errors.invalid(
            &path.child("listKind"),
            text(all, "listKind"),
            "kind and listKind may not be the same",
        );
    }
    validate_labels(all, "categories", path, errors);
}

fn validate_labels(all: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child(field);
    for (i, name) in texts(all, field).into_iter().enumerate() {
        let problems = dns1035_label(name);
        if !problems.is_empty() {
            errors.invalid(&at.index(i), name, problems.join(","));
        }
    }
}

fn validate_label(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let problems = dns1035_label(name);
    if !name.is_empty() && !problems.is_empty() {
        errors.invalid(path, name, problems.join(","));
    }
}
