//! FlowSchemas and PriorityLevelConfigurations.

mod level;
mod schema;

pub use level::PRIORITY_LEVEL;
pub use schema::FLOW_SCHEMA;

use crate::field::{Errors, Path};
use api_meta::tree::{get, list, text};
use serde_json::Value;
use std::collections::HashSet;

/// Validates the conditions of a status: their types are present and unique.
fn validate_conditions(object: &Value, errors: &mut Errors) {
    let status = Path::ROOT.child("status");
    let path = status.child("conditions");
    let conditions = list(get(object, "status"), "conditions");
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let at = path.index(i);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.duplicate(&at.child("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&at.child("type"), "");
        }
    }
}
