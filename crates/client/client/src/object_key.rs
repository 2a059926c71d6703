//! Keys of objects, also of those that can't be decoded.

use crate::json::from_slice;
use serde::Deserialize;

/// The metadata that identifies a state of an object.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Identity {
    name: String,
    namespace: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Identified {
    metadata: Identity,
}

/// Returns the key (`namespace/name`) and the resource version of an encoded object. Both are empty
/// if they can't be decoded either.
pub(crate) fn identify(text: &[u8]) -> (String, String) {
    let Identified { metadata } = from_slice(text).unwrap_or_default();
    let key = format_key(&metadata.namespace, &metadata.name);
    (key, metadata.resource_version)
}

/// Returns the key of an object with this name; the namespace is empty for cluster-scoped ones.
pub(crate) fn format_key(namespace: &str, name: &str) -> String {
    match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}
