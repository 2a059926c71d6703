//! Conditions of the type that newer kinds share (`metav1.Condition`).

use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{has, int, list, text};
use serde_json::Value;
use std::collections::BTreeSet;

const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
// Both limits are upstream's; the same numbers stand in the schema of CRDs that embed the type.
const REASON: usize = 1024;
const MESSAGE: usize = 32 * 1024;
const REASON_FORM: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Validates `status.conditions`. Each type occurs once.
pub(crate) fn validate_conditions(status: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, condition) in list(status, "conditions").iter().enumerate() {
        let at = path.index(i);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        validate_condition(condition, &at, errors);
    }
}

fn validate_condition(condition: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(condition, "type");
    errors.invalid_each(&path.child("type"), kind, names::qualified_name(kind));
    let status = text(condition, "status");
    // A missing status has the error for an unsupported one, as upstream.
    if !STATUSES.contains(&status) {
        errors.not_supported(&path.child("status"), status, &STATUSES);
    }
    if let Some(n) = int(condition, "observedGeneration").filter(|n| *n < 0) {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("observedGeneration"), n, detail);
    }
    // Clients compute from it for how long a state has lasted, so zero time would mislead them.
    if !has(condition, "lastTransitionTime") {
        errors.required(&path.child("lastTransitionTime"), "");
    }
    let (reason, at) = (text(condition, "reason"), path.child("reason"));
    if reason.is_empty() {
        errors.required(&at, "");
    } else {
        if !is_reason(reason) {
            errors.invalid(&at, reason, REASON_FORM);
        }
        if reason.len() > REASON {
            errors.too_long(&at, REASON);
        }
    }
    if text(condition, "message").len() > MESSAGE {
        errors.too_long(&path.child("message"), MESSAGE);
    }
}

/// Returns whether a reason has the form of a name that programs compare.
fn is_reason(reason: &str) -> bool {
    let bytes = reason.as_bytes();
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(is_word)
        && bytes.iter().all(|b| is_word(b) || matches!(b, b',' | b':'))
}
