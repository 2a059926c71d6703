//! The counter of template changes of DaemonSets.

use api_meta::tree::{get, make, same, set};
use serde_json::Value;

/// Sets the counter of template changes, an annotation since apps/v1.
pub(crate) fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = make(object, "metadata").and_then(|m| make(m, "annotations")) {
        set(
            annotations,
            "deprecated.daemonset.template.generation",
            generation.to_string(),
        );
    }
}

/// Increments the counter if the template changes.
pub(crate) fn count_template_generation(new: &mut Value, old: &Value) {
    let key = "/metadata/annotations/deprecated.daemonset.template.generation";
    // The field `templateGeneration` of extensions/v1beta1 is kept as an annotation since apps/v1.
    let before = old
        .pointer(key)
        .and_then(Value::as_str)
        .and_then(|t| t.parse::<i64>().ok())
        .unwrap_or(1);
    let changed = !same(get(new, "spec"), get(old, "spec"), "template");
    set_template_generation(new, before + i64::from(changed));
}
