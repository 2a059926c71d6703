//! The `resourceVersion` of an encoded object, changed without decoding it.

use crate::proto::wire::{Reader, Wire, write_bytes, write_tag, write_varint};

/// Field of the metadata in every kind.
const METADATA: u32 = 1;
/// Field of `resourceVersion` in `ObjectMeta`.
const RESOURCE_VERSION: u32 = 6;

/// Returns an encoded message with `metadata.resourceVersion`; `None` if the message does not begin
/// with its metadata, as all encoders write it.
pub fn set_resource_version(message: &[u8], revision: i64) -> Option<Vec<u8>> {
    let mut fields = Reader::new(message);
    let Ok(Some((METADATA, Wire::Bytes(metadata)))) = fields.field() else {
        return None;
    };
    let rest = message.get(message.len() - fields.left()..)?;
    let (before, after) = split_metadata(metadata)?;
    let mut version = Vec::with_capacity(24);
    write_bytes(
        RESOURCE_VERSION,
        revision.to_string().as_bytes(),
        &mut version,
    );
    let length = before.len() + version.len() + after.len();
    // Exactly, because the bytes live as long as the object: a tag, a length of at most five bytes.
    let mut head = Vec::with_capacity(6);
    write_tag(METADATA, 2, &mut head);
    write_varint(length as u64, &mut head);
    Some([&head, before, &version, after, rest].concat())
}

/// Returns the fields of the metadata before and after `resourceVersion`.
fn split_metadata(metadata: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Reader::new(metadata);
    loop {
        let start = metadata.len() - fields.left();
        match fields.field().ok()? {
            Some((number, _)) if number < RESOURCE_VERSION => {}
            Some((RESOURCE_VERSION, _)) => {
                let end = metadata.len() - fields.left();
                return Some((metadata.get(..start)?, metadata.get(end..)?));
            }
            // Encoders write the fields by number, so that it is absent.
            _ => return Some(metadata.split_at(start)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proto;
    use serde_json::json;

    #[test]
    fn changed_bytes_equal_those_of_the_changed_object() {
        let message = api_schema::schema()
            .message("k8s.io.api.core.v1.Pod")
            .unwrap();
        for metadata in [
            json!({}),
            json!({"name": "a"}),
            json!({"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7",
                "labels": {"b": "2", "a": "1"}, "annotations": {"long": "x".repeat(300)},
                "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 3}),
        ] {
            let mut pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}});
            let bytes = proto::encode(message, &pod);
            for revision in [1, 123_456_789_012] {
                let changed = set_resource_version(&bytes, revision).unwrap();
                pod["metadata"]["resourceVersion"] = revision.to_string().into();
                assert_eq!(changed, proto::encode(message, &pod), "{pod}");
                assert_eq!(set_resource_version(&changed, revision), Some(changed));
            }
        }
    }

    #[test]
    fn message_that_does_not_begin_with_metadata_is_left_alone() {
        for bytes in [
            &b""[..],
            b"\x12\x00",
            b"\x0a\x05\x0a",
            b"\x0a\x01\x0a",
            b"\x08\x01",
        ] {
            assert_eq!(set_resource_version(bytes, 1), None, "{bytes:?}");
        }
    }
}
