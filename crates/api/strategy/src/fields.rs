//! Fields that a write keeps.

use api_meta::tree::{remove, set};
use serde_json::Value;

/// Resets a field of `new` to its value in `old`.
pub(crate) fn keep_field(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => set(new, field, value.clone()),
        None => {
            remove(new, field);
        }
    }
}
