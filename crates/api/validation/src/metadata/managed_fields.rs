//! `metadata.managedFields`: the owners of an object's fields.

use crate::field::{Errors, Path};
use api_meta::tree::{list, text};
use serde_json::Value;

const LONGEST_MANAGER: usize = 128;
const LONGEST_SUBRESOURCE: usize = 256;

/// Validates the entries that a client has sent and the server has kept.
pub(super) fn validate_managed_fields(meta: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, entry) in list(meta, "managedFields").iter().enumerate() {
        let at = path.index(i);
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            let detail = "must be `Apply` or `Update`";
            errors.invalid(&at.child("operation"), operation, detail);
        }
        let form = text(entry, "fieldsType");
        if !matches!(form, "" | "FieldsV1") {
            errors.invalid(&at.child("fieldsType"), form, "must be `FieldsV1`");
        }
        validate_manager(text(entry, "manager"), &at.child("manager"), errors);
        if text(entry, "subresource").len() > LONGEST_SUBRESOURCE {
            errors.too_long(&at.child("subresource"), LONGEST_SUBRESOURCE);
        }
    }
}

/// Validates a manager's name, which clients print to terminals.
fn validate_manager(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.len() > LONGEST_MANAGER {
        errors.too_long(path, LONGEST_MANAGER);
        // Each of the following errors shows the name, which may be as long as the request.
        return;
    }
    let is_printable = |c: char| c == ' ' || !(c.is_control() || c.is_whitespace());
    for (position, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let code = u32::from(c);
        let detail = format!("invalid character U+{code:04X} (at position {position})");
        errors.invalid(path, name, detail);
    }
}
