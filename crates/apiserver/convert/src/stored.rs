//! The stored form of objects: protobuf in upstream's envelope, or JSON.

use api_codec::{Strictness, envelope, json, proto};
use api_kinds::Resource;
use serde_json::Value;

/// Stored bytes that are no object of the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredError(pub String);

impl std::fmt::Display for StoredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoredError {}

/// Decodes bytes of any version of the kind; the result has `resource`'s version, with `kind` and
/// `apiVersion`.
pub fn decode_stored(resource: &'static Resource, bytes: &[u8]) -> Result<Value, StoredError> {
    let error = |e: &dyn std::fmt::Display| StoredError(e.to_string());
    if !bytes.starts_with(&envelope::MAGIC) {
        let (object, _) =
            json::decode(resource.message, bytes, Strictness::Ignore).map_err(|e| error(&e))?;
        return Ok(with_type_meta(resource, object));
    }
    let frame = envelope::unwrap(bytes).map_err(|e| error(&e))?;
    let (group, version) = frame
        .api_version
        .split_once('/')
        .unwrap_or(("", frame.api_version));
    let written = api_kinds::find_kind(group, version, frame.kind).ok_or_else(|| {
        StoredError(format!(
            "no kind {} {} is known",
            frame.api_version, frame.kind
        ))
    })?;
    if written.kind != resource.kind {
        return Err(StoredError(format!(
            "it holds a {}, not a {}",
            frame.kind, resource.kind
        )));
    }
    let object = proto::decode(written.message, frame.raw).map_err(|e| error(&e))?;
    Ok(crate::convert_object(
        written,
        resource,
        with_type_meta(written, object),
    ))
}

/// Encodes an object of `resource`'s version, which is the storage version.
pub fn encode_stored(resource: &'static Resource, object: &Value) -> Vec<u8> {
    envelope::wrap(
        &resource.api_version(),
        resource.kind,
        &proto::encode(resource.message, object),
    )
}

fn with_type_meta(resource: &Resource, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), Value::String(resource.api_version()));
        map.insert("kind".into(), Value::String(resource.kind.into()));
    }
    object
}
