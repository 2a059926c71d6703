//! References to objects of any version.

use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::text;
use serde_json::Value;

/// Forms of `apiVersion` that a reference to an object may have.
#[derive(Clone, Copy)]
pub(super) enum VersionRule {
    /// A group and a version.
    Group,
    /// A version, with or without a group.
    Any,
    /// Anything: the old object was not better.
    Unchecked,
}

/// Validates a reference to any kind, which need not be known here.
pub(super) fn validate_reference(
    reference: &Value,
    rule: VersionRule,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(&path.child(field), "");
        } else {
            // The name becomes a segment of the URL of the scale subresource. The referenced kind's
            // own rule is unknown here.
            errors.invalid_each(&path.child(field), value, names::path_segment(value));
        }
    }
    let version = text(reference, "apiVersion");
    if let Some(problem) = find_version_problem(version, rule) {
        errors.invalid(&path.child("apiVersion"), version, problem);
    }
}

pub(super) fn find_version_problem(version: &str, rule: VersionRule) -> Option<String> {
    // Upstream's parser accepts a lone slash as an empty version.
    let parts = match version {
        "/" => 0,
        other => other.split('/').count(),
    };
    match rule {
        VersionRule::Unchecked => None,
        _ if parts > 2 => Some(format!("unexpected GroupVersion string: {version}")),
        VersionRule::Group if parts < 2 || version.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}
