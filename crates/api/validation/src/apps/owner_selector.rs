//! Selectors of the controllers of pods.

use crate::field::{Errors, Path};
use crate::selector;
use api_meta::tree::get;
use serde_json::{Value, json};

/// Details of errors about selectors, which differ by kind.
#[derive(Clone, Copy)]
pub(super) struct SelectorMessages {
    pub empty: &'static str,
    pub invalid: &'static str,
}

/// Validates the selector of a controller's pods. Returns false if it can't be compiled; the
/// template is not validated then, as its errors would hide that of the selector.
pub(super) fn validate_owner_selector(
    spec: &Value,
    messages: SelectorMessages,
    path: &Path<'_>,
    errors: &mut Errors,
) -> bool {
    let (labels, at) = (get(spec, "selector"), path.child("selector"));
    // Without a selector the controller would not find its pods again. It is no longer defaulted
    // from the template since apps/v1.
    if labels.is_null() {
        errors.required(&at, "");
    } else {
        selector::validate_label_selector(labels, &at, errors);
        // It would select the pods of all other controllers in the namespace.
        if selector::is_empty_selector(labels) {
            errors.invalid(&at, json!({}), messages.empty);
        }
    }
    let is_valid = selector::compile_selector(labels).is_ok();
    if !is_valid {
        errors.invalid(&at, labels.clone(), messages.invalid);
    }
    is_valid
}
