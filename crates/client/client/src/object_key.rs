//! Keys of objects.

use serde_json::Value;

/// Returns the key (`namespace/name`) of an object in a JSON tree.
pub(crate) fn key_of(tree: &Value) -> String {
    let text = |path| {
        tree.pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    match text("/metadata/namespace") {
        "" => text("/metadata/name").to_owned(),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    }
}
