//! Webhook configurations, admission policies and their bindings.

mod binding;
mod policy;
mod rule;
mod webhooks;

pub use binding::{MUTATING_BINDING, VALIDATING_BINDING};
pub use policy::{MUTATING_POLICY, VALIDATING_POLICY};
pub use webhooks::WEBHOOKS;

use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{list, text};
use serde_json::Value;
use std::collections::HashSet;

// Upstream's limit. The conditions of all webhooks are evaluated while the client's request waits.
const MOST_CONDITIONS: usize = 64;

/// Validates the names of match conditions, and that each has an expression.
fn validate_condition_names(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(parent, "matchConditions");
    let path = path.child("matchConditions");
    if all.len() > MOST_CONDITIONS {
        errors.too_many(&path, all.len(), MOST_CONDITIONS);
    }
    let mut seen = HashSet::new();
    for (i, condition) in all.iter().enumerate() {
        let at = path.index(i);
        if text(condition, "expression").trim().is_empty() {
            errors.required(&at.child("expression"), "");
        }
        let name = text(condition, "name");
        let at = at.child("name");
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        errors.invalid_each(&at, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
    }
}
