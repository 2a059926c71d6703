//! Names of CSI drivers.

use crate::field::{Errors, Path};
use api_meta::names;

/// Validates the name of a CSI driver.
pub(super) fn validate_csi_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    // The name is part of directories and sockets on the node.
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    let lower = name.to_lowercase();
    errors.invalid_each(path, name, names::dns1123_subdomain(&lower));
}
