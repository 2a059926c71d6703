//! The stored form of objects: protobuf in upstream's envelope; for custom resources JSON, or CBOR
//! if that is enabled.

use crate::codec;
use crate::custom::coerce_stored;
use api_codec::proto::Part;
use api_codec::transcode::{self, TypeMeta};
use api_codec::{DecodeError, Strictness, cbor, envelope, json, proto};
use api_kinds::{CustomSchema, ObjectSchema, Resource, StorageFormat};
use api_schema::Message;
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
pub fn decode_stored(resource: &Resource, bytes: &[u8]) -> Result<Value, StoredError> {
    match &resource.schema {
        ObjectSchema::BuiltIn(message) => decode_built_in(resource, message, bytes),
        ObjectSchema::Custom(schema) => decode_custom(resource, schema, bytes),
    }
}

fn decode_built_in(
    resource: &Resource,
    message: &'static Message,
    bytes: &[u8],
) -> Result<Value, StoredError> {
    let error = |e: &dyn std::fmt::Display| StoredError(e.to_string());
    // Objects that an older server or a tool wrote may be JSON; upstream reads both, too.
    if !bytes.starts_with(&envelope::MAGIC) {
        let tree = json::parse(bytes).map_err(|e| error(&e))?;
        let text = |name: &str| tree.get(name).and_then(Value::as_str).unwrap_or_default();
        // A tool may leave out the type.
        let written = match text("kind") {
            "" => resource,
            kind => find_written(resource, text("apiVersion"), kind)?,
        };
        let message = written.schema.message().unwrap_or(message);
        let (object, _) =
            json::decode(message, bytes, Strictness::Ignore).map_err(|e| error(&e))?;
        let object = with_type_meta(written, object);
        return Ok(crate::convert_object(written, resource, object));
    }
    let frame = envelope::unwrap(bytes).map_err(|e| error(&e))?;
    let written = find_written(resource, frame.api_version, frame.kind)?;
    let message = written.schema.message().unwrap_or(message);
    let object = proto::decode(message, frame.raw).map_err(|e| error(&e))?;
    Ok(crate::convert_object(
        written,
        resource,
        with_type_meta(written, object),
    ))
}

/// Returns the version of the writer, which may be older than the storage version of this release.
fn find_written(
    resource: &Resource,
    api_version: &str,
    kind: &str,
) -> Result<&'static Resource, StoredError> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let written = api_kinds::find_kind(group, version, kind)
        .ok_or_else(|| StoredError(format!("no kind {api_version} {kind} is known")))?;
    // Decoding as another kind rarely fails: it yields a wrong object.
    if written.kind != resource.kind {
        return Err(StoredError(format!(
            "it holds a {kind}, not a {}",
            resource.kind
        )));
    }
    Ok(written)
}

/// Parses a stored custom resource, which is JSON or CBOR: both are read whatever is written now.
fn parse_custom(bytes: &[u8]) -> Result<Value, DecodeError> {
    if bytes.starts_with(&cbor::MAGIC) {
        cbor::parse(bytes)
    } else {
        json::parse(bytes)
    }
}

/// Returns the `apiVersion` in which a custom resource is stored.
pub fn stored_version(bytes: &[u8]) -> Option<String> {
    let tree = parse_custom(bytes).ok()?;
    Some(tree.get("apiVersion")?.as_str()?.to_owned())
}

/// Decodes a custom resource, which is stored in any of its versions.
fn decode_custom(
    resource: &Resource,
    schema: &CustomSchema,
    bytes: &[u8],
) -> Result<Value, StoredError> {
    let mut object = parse_custom(bytes).map_err(|e| StoredError(e.to_string()))?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    // Another type under this prefix was written by a tool. Served under this kind's name, it would
    // be subject to the wrong permissions.
    if kind != resource.kind || group != resource.group {
        return Err(StoredError(format!(
            "it holds a {kind} of {api_version}, not a {}",
            resource.kind
        )));
    }
    if schema.converter.is_some() && api_version != resource.api_version() {
        // The schema is that of another version. The reader converts.
        return Ok(object);
    }
    coerce_stored(schema, &mut object);
    // Conversion strategy None: versions differ in their name only.
    Ok(with_type_meta(resource, object))
}

/// Returns the protobuf message of stored bytes, if they hold `resource`'s own version.
pub fn stored_message<'a>(resource: &Resource, bytes: &'a [u8]) -> Option<&'a [u8]> {
    resource.schema.message()?;
    let frame = envelope::unwrap(bytes).ok()?;
    let is_own = frame.api_version == resource.api_version() && frame.kind == resource.kind;
    is_own.then_some(frame.raw)
}

/// Returns a protobuf message with `metadata.resourceVersion`; `None` if it must be decoded for
/// that.
pub fn set_resource_version(message: &[u8], revision: i64) -> Option<Vec<u8>> {
    proto::set_resource_version(message, revision)
}

/// Decodes a part of a protobuf message of `resource`'s version; the result has `kind` and
/// `apiVersion`.
pub fn decode_message(
    resource: &Resource,
    bytes: &[u8],
    part: &Part,
) -> Result<Value, StoredError> {
    let message = find_message(resource)?;
    let object =
        proto::decode_part(message, bytes, part).map_err(|e| StoredError(e.to_string()))?;
    Ok(with_type_meta(resource, object))
}

/// Checks the part of a protobuf message that is not decoded for observers.
///
/// # Errors
/// The managedFields of the message can't be decoded.
pub fn check_managed_fields(resource: &Resource, bytes: &[u8]) -> Result<(), StoredError> {
    let path = ["metadata", "managedFields"];
    transcode::check_member(find_message(resource)?, bytes, &path)
        .map_err(|e| StoredError(e.to_string()))
}

/// Returns a protobuf message of `resource`'s version in JSON, as [`codec::encode_json`] does for
/// its tree.
pub fn message_to_json(resource: &Resource, bytes: &[u8]) -> Result<Vec<u8>, StoredError> {
    let message = find_message(resource)?;
    let type_meta = TypeMeta {
        kind: &resource.kind,
        api_version: &resource.api_version(),
    };
    // JSON repeats the names of fields; more than twice the bytes is rare.
    let mut json = Vec::with_capacity(2 * bytes.len() + 64);
    transcode::write_json(message, bytes, type_meta, &mut json)
        .map_err(|e| StoredError(e.to_string()))?;
    Ok(json)
}

fn find_message(resource: &Resource) -> Result<&'static Message, StoredError> {
    let missing = || StoredError(format!("{} has no protobuf encoding", resource.kind));
    resource.schema.message().ok_or_else(missing)
}

/// Encodes an object of `resource`'s version, which is the storage version.
pub fn encode_stored(resource: &Resource, object: &Value) -> Vec<u8> {
    let format = resource.storage.as_ref().map(|storage| storage.format);
    match (&resource.schema, format) {
        (ObjectSchema::BuiltIn(message), None | Some(StorageFormat::Protobuf)) => envelope::wrap(
            &resource.api_version(),
            &resource.kind,
            &proto::encode(message, object),
        ),
        (ObjectSchema::Custom(_), Some(StorageFormat::Cbor)) => {
            cbor::mark(&codec::encode_cbor(&resource.schema, object))
        }
        _ => {
            let mut bytes = codec::encode_json(&resource.schema, object);
            // As upstream's encoder, whose newline is a part of the stored value.
            bytes.push(b'\n');
            bytes
        }
    }
}

/// Less than the decoder of any encoding allows.
const ALWAYS_READABLE_DEPTH: usize = 90;

/// Encodes an object of a client, as [`encode_stored`] does, if it can be decoded again.
///
/// Managed fields and other encodings nest deeper than the body that was accepted. One object that
/// can't be decoded makes every list of its kind fail.
///
/// # Errors
/// The object is nested too deeply.
pub fn encode_readable(resource: &Resource, object: &Value) -> Result<Vec<u8>, StoredError> {
    let stored = encode_stored(resource, object);
    if is_deeper(object, ALWAYS_READABLE_DEPTH) {
        decode_stored(resource, &stored)?;
    }
    Ok(stored)
}

fn is_deeper(value: &Value, limit: usize) -> bool {
    let Some(below) = limit.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, below)),
        Value::Object(members) => members.values().any(|member| is_deeper(member, below)),
        _ => false,
    }
}

fn with_type_meta(resource: &Resource, mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), Value::String(resource.api_version()));
        map.insert(
            "kind".into(),
            Value::String(resource.kind.clone().into_owned()),
        );
    }
    object
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_kinds::Storage;
    use serde_json::json;
    use std::sync::Arc;

    fn find(group: &str, version: &str, plural: &str) -> &'static Arc<Resource> {
        api_kinds::find(group, version, plural).unwrap()
    }

    #[test]
    fn stored_object_is_read_back_with_its_type() {
        let maps = find("", "v1", "configmaps");
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let read = decode_stored(maps, &encode_stored(maps, &object)).unwrap();
        assert_eq!(
            (&read["apiVersion"], &read["kind"]),
            (&json!("v1"), &json!("ConfigMap"))
        );
        assert_eq!(read["data"], json!({"k": "v"}));
    }

    #[test]
    fn object_that_could_not_be_read_is_not_encoded() {
        let maps = find("", "v1", "configmaps");
        let is_readable = |depth: usize| {
            let fields = (1..depth).fold(json!({}), |inner, _| json!({"f:a": inner}));
            let managed = json!([{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
            let object = json!({"metadata": {"name": "a", "managedFields": managed}});
            let readable = encode_readable(maps, &object).is_ok();
            let decoded = decode_stored(maps, &encode_stored(maps, &object));
            assert_eq!(readable, decoded.is_ok(), "{depth}");
            readable
        };
        let depths: Vec<usize> = (80..140).filter(|depth| is_readable(*depth)).collect();
        assert_eq!(depths, (80..=127).collect::<Vec<_>>());
    }

    #[test]
    fn object_stored_as_json_is_read() {
        let bytes = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"later":1}"#;
        let read = decode_stored(find("", "v1", "configmaps"), bytes).unwrap();
        assert_eq!(read["metadata"]["name"], "a");
        assert_eq!(read.get("later"), None, "an unknown field is ignored");
    }

    #[test]
    fn object_of_another_version_is_converted() {
        let (v1, v2) = (
            find("autoscaling", "v1", "horizontalpodautoscalers"),
            find("autoscaling", "v2", "horizontalpodautoscalers"),
        );
        let object = json!({"metadata": {"name": "a", "namespace": "d"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "targetCPUUtilizationPercentage": 80}});
        let read = decode_stored(v2, &encode_stored(v1, &object)).unwrap();
        assert_eq!(read["apiVersion"], "autoscaling/v2");
        let metric = &read["spec"]["metrics"][0]["resource"];
        assert_eq!(
            (&metric["name"], &metric["target"]["averageUtilization"]),
            (&json!("cpu"), &json!(80))
        );
    }

    #[test]
    fn bytes_of_another_kind_are_rejected() {
        let secret = encode_stored(
            find("", "v1", "secrets"),
            &json!({"metadata": {"name": "a"}}),
        );
        let maps = find("", "v1", "configmaps");
        let error = decode_stored(maps, &secret).unwrap_err().to_string();
        assert!(
            error.contains("Secret") && error.contains("ConfigMap"),
            "{error}"
        );
        let unknown = envelope::wrap("example.com/v1", "Thing", b"");
        assert!(decode_stored(maps, &unknown).is_err());
        for broken in [&b""[..], b"{", b"k8s\0", b"k8s\0\xff\xff\xff"] {
            assert!(decode_stored(maps, broken).is_err(), "{broken:?}");
        }
    }

    fn custom() -> Resource {
        let mut resource = Resource::clone(find("", "v1", "configmaps"));
        resource.schema = ObjectSchema::Custom(Default::default());
        (resource.group, resource.version) = ("e.io".into(), "v2".into());
        resource.kind = "Thing".into();
        resource
    }

    fn storage(format: StorageFormat) -> Storage {
        Storage {
            prefix: "/e.io/things".into(),
            api_version: "e.io/v2".into(),
            schema: ObjectSchema::Custom(Default::default()),
            format,
        }
    }

    #[test]
    fn built_in_kind_is_stored_as_json_if_that_is_chosen() {
        let found = api_kinds::find("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
        let mut resource = Resource::clone(found);
        if let Some(storage) = &mut resource.storage {
            storage.format = StorageFormat::Json;
        }
        let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        let bytes = encode_stored(&resource, &object);
        assert!(bytes.starts_with(b"{") && bytes.ends_with(b"}\n"));
        let read = decode_stored(&resource, &bytes).unwrap();
        assert_eq!(read["spec"]["maxReplicas"], 3);
        let old = br#"{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},
            "spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":50,"scaleTargetRef":{"kind":"Deployment","name":"d"}}}"#;
        let read = decode_stored(&resource, old).unwrap();
        assert_eq!(read["apiVersion"], "autoscaling/v2");
        assert_eq!(read["spec"]["metrics"][0]["type"], "Resource");
        let wrong = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
        assert!(decode_stored(&resource, wrong).is_err());
    }

    #[test]
    fn custom_resource_is_stored_as_json_of_its_version() {
        let resource = custom();
        let object = json!({"apiVersion": "e.io/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}});
        let bytes = encode_stored(&resource, &object);
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), object);
        assert!(bytes.ends_with(b"}\n"));
        let older = br#"{"apiVersion":"e.io/v1","kind":"Thing","metadata":{"name":"a"}}"#;
        let read = decode_stored(&resource, older).unwrap();
        assert_eq!(read["apiVersion"], "e.io/v2");
        for wrong in [
            &br#"{"apiVersion":"e.io/v1","kind":"Other"}"#[..],
            br#"{"apiVersion":"other.io/v1","kind":"Thing"}"#,
            b"[]",
            b"k8s\0",
        ] {
            assert!(decode_stored(&resource, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn custom_resource_is_stored_as_cbor_if_enabled_and_read_in_both_forms() {
        let mut json = custom();
        let mut cbor = json.clone();
        json.storage = Some(storage(StorageFormat::Json));
        cbor.storage = Some(storage(StorageFormat::Cbor));
        let object = json!({"apiVersion": "e.io/v2", "kind": "Thing",
            "metadata": {"name": "a", "generation": 1}, "spec": {"x": 1.0}});
        let written = [&json, &cbor].map(|resource| encode_stored(resource, &object));
        assert!(written[1].starts_with(&cbor::MAGIC), "{written:?}");
        for resource in [&json, &cbor] {
            for bytes in &written {
                let read = decode_stored(resource, bytes).unwrap();
                assert_eq!(read["metadata"], object["metadata"]);
                assert_eq!(read["spec"]["x"].as_f64(), Some(1.0));
                assert_eq!(stored_version(bytes).as_deref(), Some("e.io/v2"));
            }
        }
        assert!(decode_stored(&json, &cbor::MAGIC).is_err());
        assert!(decode_stored(&json, &cbor::mark(b"\x80")).is_err());
    }

    #[test]
    fn storage_version_is_one_for_all_served_versions() {
        for version in ["v1", "v2"] {
            let served = find("autoscaling", version, "horizontalpodautoscalers");
            assert_eq!(crate::storage_resource(served).version, "v2", "{version}");
        }
        let events = find("events.k8s.io", "v1", "events");
        assert_eq!(crate::storage_resource(events).plural, "events");
    }
}
