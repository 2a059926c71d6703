//! Read access to a definition.

use api_meta::Meta;
use api_meta::tree::{get, list, text};
use serde_json::Value;

/// Set by a delete, and removed after the instances are deleted.
pub(crate) use api_strategy::definition::CLEANUP_FINALIZER;

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const PLURAL: &str = "customresourcedefinitions";

pub(crate) fn group(definition: &Value) -> &str {
    text(get(definition, "spec"), "group")
}

pub(crate) fn names(definition: &Value) -> &Value {
    get(get(definition, "spec"), "names")
}

pub(crate) fn accepted_names(definition: &Value) -> &Value {
    get(get(definition, "status"), "acceptedNames")
}

pub(crate) fn find_condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    list(get(definition, "status"), "conditions")
        .iter()
        .find(|condition| text(condition, "type") == kind)
}

pub(crate) fn is_true(definition: &Value, kind: &str) -> bool {
    find_condition(definition, kind).is_some_and(|condition| text(condition, "status") == "True")
}

/// Returns whether no instances may be created any more. A definition that waits for finalizers of
/// others after the cleanup counts as well: its new instances would never be deleted.
pub(crate) fn is_terminating(definition: &Value) -> bool {
    definition.is_being_deleted() || is_true(definition, "Terminating")
}

pub(crate) fn needs_cleanup(definition: &Value) -> bool {
    definition.is_being_deleted() && definition.finalizers().contains(&CLEANUP_FINALIZER)
}
