//! Paths inside a volume.

use crate::field::{Errors, Path};

/// Validates a relative path without `..`.
pub fn validate_descending_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    validate_no_backsteps(value, path, errors);
}

/// Validates a path without `..`.
pub fn validate_no_backsteps(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if value.split('/').any(|p| p == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// Validates a relative path without `..` whose first part is not a name of the kubelet: its atomic
/// writer keeps links with names such as `..data` in the volume.
pub fn validate_non_reserved_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_descending_path(value, path, errors);
    if value.starts_with("..") && !value.starts_with("../") {
        errors.invalid(path, value, "must not start with '..'");
    }
}
