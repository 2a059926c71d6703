//! Fields that a write keeps.

use api_meta::tree::{at_mut, each_mut, get, has, remove, set, text};
use serde_json::{Value, json};

/// Resets a field of `new` to its value in `old`.
pub(crate) fn keep_field(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        // Comparing takes a fraction of the time of a copy.
        Some(value) if new.get(field) == Some(value) => {}
        Some(value) => set(new, field, value.clone()),
        None => {
            remove(new, field);
        }
    }
}

/// Keeps only the names in a ServiceAccount's references to Secrets. Other fields have no meaning.
pub(crate) fn keep_secret_names(account: &mut Value) {
    for secret in each_mut(account, "secrets") {
        let name = text(secret, "name").to_owned();
        *secret = json!({"name": name});
    }
}

/// Drops a Node's configuration source, which kubelets don't read any more, unless the old object
/// has one.
pub(crate) fn drop_config_source(node: &mut Value, old: Option<&Value>) {
    let is_used = old.is_some_and(|old| has(get(old, "spec"), "configSource"));
    if let (false, Some(spec)) = (is_used, at_mut(node, "spec")) {
        remove(spec, "configSource");
    }
    if let (None, Some(status)) = (old, at_mut(node, "status")) {
        remove(status, "config");
    }
}
