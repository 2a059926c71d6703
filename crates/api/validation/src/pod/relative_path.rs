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
