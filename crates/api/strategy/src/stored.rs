//! Changes that storing an object causes.

use api_meta::Kind;
use api_meta::tree::{at_mut, list, remove, text};
use serde_json::Value;

/// Applies the changes that storing an object causes. Protobuf has no empty lists, so those that
/// are always written are read back as null. Fields that upstream hides from readers are dropped.
pub fn as_stored(kind: Kind<'_>, object: &mut Value) {
    if (kind.group, kind.kind) == ("storage.k8s.io", "CSINode")
        && let Some(spec) = at_mut(object, "spec")
        && list(spec, "drivers").is_empty()
    {
        // An absent list is written as null.
        remove(spec, "drivers");
    }
    // A Service of another type gets the policy by default, and an alias has no traffic.
    if (kind.group, kind.kind) == ("", "Service")
        && let Some(spec) = at_mut(object, "spec")
        && text(spec, "type") == "ExternalName"
    {
        remove(spec, "internalTrafficPolicy");
    }
}
