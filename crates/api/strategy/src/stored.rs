//! Changes that storing an object causes.

use api_meta::Kind;
use api_meta::tree::{at_mut, list, remove};
use serde_json::Value;

/// Applies the changes that storing an object as protobuf causes: it has no empty lists, so those
/// that are always written are read back as null.
pub fn as_stored(kind: Kind<'_>, object: &mut Value) {
    if (kind.group, kind.kind) == ("storage.k8s.io", "CSINode")
        && let Some(spec) = at_mut(object, "spec")
        && list(spec, "drivers").is_empty()
    {
        // An absent list is written as null.
        remove(spec, "drivers");
    }
}
