//! Joins encoded items into list bodies.

use crate::cbor::{self, ARRAY, MAP, split_members, write_head, write_text};
use crate::envelope;
use crate::json::write_string;
use crate::proto::wire::{varint_length, write_bytes, write_int, write_nested};
use serde_json::{Map, Value};

/// `metadata` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// Revision of the list.
    pub resource_version: String,
    /// Continue token of the next page; empty on the last one.
    pub continue_token: String,
    /// Number of items after this page, if known.
    pub remaining_item_count: Option<i64>,
}

/// The bytes after the items of a JSON list.
pub const JSON_TAIL: &[u8] = b"]}";

/// The bytes after the items of a protobuf list: the end of the envelope.
pub const PROTO_TAIL: &[u8] = envelope::TAIL;

/// Returns the bytes before the items of a JSON list.
pub fn json_head(api_version: &str, kind: &str, meta: &ListMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(b"{\"kind\":");
    write_string(kind, &mut out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(api_version, &mut out);
    out.extend_from_slice(b",\"metadata\":{");
    write_meta(meta, &mut out);
    out.extend_from_slice(b"},\"items\":[");
    out
}

/// Appends an item of a JSON list, without a comma: an object encoded by `json::encode`. If
/// `strip_type_meta` is set, its leading `kind` and `apiVersion` are omitted, as upstream does for
/// built-in kinds.
pub fn write_json_item(item: &[u8], strip_type_meta: bool, out: &mut Vec<u8>) {
    // Cached bytes of single objects begin with kind and apiVersion. Items of a list have none
    // upstream, and kubectl and client-go do not expect them.
    match strip_type_meta.then(|| without_type_meta(item)).flatten() {
        Some(rest) => {
            out.push(b'{');
            out.extend_from_slice(rest);
        }
        None => out.extend_from_slice(item),
    }
}

/// Joins items into a JSON list, see [`write_json_item`].
pub fn json<'a>(
    api_version: &str,
    kind: &str,
    meta: &ListMeta,
    items: impl IntoIterator<Item = &'a [u8]>,
    strip_type_meta: bool,
) -> Vec<u8> {
    let mut out = json_head(api_version, kind, meta);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json_item(item, strip_type_meta, &mut out);
    }
    out.extend_from_slice(JSON_TAIL);
    out
}

fn write_meta(meta: &ListMeta, out: &mut Vec<u8>) {
    let start = out.len();
    let member = |name: &str, out: &mut Vec<u8>| {
        if out.len() > start {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
    };
    if !meta.resource_version.is_empty() {
        member("resourceVersion", out);
        write_string(&meta.resource_version, out);
    }
    if !meta.continue_token.is_empty() {
        member("continue", out);
        write_string(&meta.continue_token, out);
    }
    if let Some(count) = meta.remaining_item_count {
        member("remainingItemCount", out);
        out.extend_from_slice(count.to_string().as_bytes());
    }
}

/// Returns the rest of an encoded object after `{"kind":"..","apiVersion":"..",`. Both values are
/// plain names.
fn without_type_meta(item: &[u8]) -> Option<&[u8]> {
    let rest = after_text(item.strip_prefix(b"{\"kind\":\"")?)?;
    let rest = after_text(rest.strip_prefix(b",\"apiVersion\":\"")?)?;
    rest.strip_prefix(b",").or(Some(rest))
}

fn after_text(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'"')?;
    bytes.get(end + 1..)
}

/// Returns the bytes before the items of a protobuf list. `length` is that of all items, see
/// [`proto_item_length`].
pub fn proto_head(api_version: &str, kind: &str, meta: &ListMeta, length: usize) -> Vec<u8> {
    let mut list = Vec::with_capacity(64);
    write_nested(1, &mut list, |out| {
        // Field 1 is `selfLink`, which is always empty now, and gogo writes it nevertheless.
        write_bytes(1, b"", out);
        write_bytes(2, meta.resource_version.as_bytes(), out);
        write_bytes(3, meta.continue_token.as_bytes(), out);
        if let Some(count) = meta.remaining_item_count {
            write_int(4, count as u64, out);
        }
    });
    let mut out = Vec::with_capacity(256);
    envelope::begin(api_version, kind, list.len() + length, &mut out);
    out.extend_from_slice(&list);
    out
}

/// Appends an item of a protobuf list: a message without an envelope.
pub fn write_proto_item(item: &[u8], out: &mut Vec<u8>) {
    write_bytes(2, item, out);
}

/// Returns the number of bytes of an item of this length.
pub fn proto_item_length(item: usize) -> usize {
    1 + varint_length(item as u64) + item
}

/// Joins items (messages without an envelope) into a protobuf list with an envelope.
pub fn proto<'a>(
    api_version: &str,
    kind: &str,
    meta: &ListMeta,
    items: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>,
) -> Vec<u8> {
    let items = items.into_iter();
    let length = items.clone().map(|item| proto_item_length(item.len()));
    let mut out = proto_head(api_version, kind, meta, length.sum());
    items.for_each(|item| write_proto_item(item, &mut out));
    out.extend_from_slice(PROTO_TAIL);
    out
}

/// Joins items into a CBOR list. Each item is an object encoded by `cbor::encode`, without a mark.
/// `strip_type_meta` is as for [`json`].
pub fn cbor(
    api_version: &str,
    kind: &str,
    meta: &ListMeta,
    items: &[impl AsRef<[u8]>],
    strip_type_meta: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(&cbor::MAGIC);
    // Keys in the order of their encoding: shorter ones first.
    write_head(MAP, 4, &mut out);
    write_text("kind", &mut out);
    write_text(kind, &mut out);
    write_text("items", &mut out);
    write_head(ARRAY, items.len() as u64, &mut out);
    for item in items {
        let item = item.as_ref();
        match strip_type_meta.then(|| split_members(item)).flatten() {
            Some(members) => write_without_type_meta(&members, &mut out),
            None => out.extend_from_slice(item),
        }
    }
    write_text("metadata", &mut out);
    cbor::write_value(&Value::Object(meta_tree(meta)), &mut out);
    write_text("apiVersion", &mut out);
    write_text(api_version, &mut out);
    out
}

fn write_without_type_meta(members: &[(&[u8], &[u8])], out: &mut Vec<u8>) {
    let kept = || {
        let is_kept = |key: &[u8]| key != b"kind" && key != b"apiVersion";
        members.iter().filter(move |(key, _)| is_kept(key))
    };
    write_head(MAP, kept().count() as u64, out);
    kept().for_each(|(_, member)| out.extend_from_slice(member));
}

/// Builds the metadata of a list as a tree.
pub fn meta_tree(meta: &ListMeta) -> Map<String, Value> {
    let mut tree = Map::new();
    if !meta.resource_version.is_empty() {
        let version = meta.resource_version.clone();
        tree.insert("resourceVersion".into(), version.into());
    }
    if !meta.continue_token.is_empty() {
        tree.insert("continue".into(), meta.continue_token.clone().into());
    }
    if let Some(remaining) = meta.remaining_item_count {
        tree.insert("remainingItemCount".into(), remaining.into());
    }
    tree
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_join_items() {
        let meta = ListMeta {
            resource_version: "7".to_owned(),
            remaining_item_count: Some(3),
            ..ListMeta::default()
        };
        let items: [&[u8]; 2] = [
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
            br#"{"kind":"Pod","apiVersion":"v1"}"#,
        ];
        assert_eq!(
            String::from_utf8(super::json("v1", "PodList", &meta, items, true)).unwrap(),
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{}]}"#
        );
        let bytes = super::proto("v1", "PodList", &meta, [&b"\x0a\x00"[..]]);
        let schema = api_schema::schema()
            .message("k8s.io.api.core.v1.PodList")
            .unwrap();
        let list = crate::proto::decode_object(schema, &bytes).unwrap();
        assert_eq!(list["metadata"]["resourceVersion"], "7");
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        assert_eq!(list["kind"], "PodList");
        let items = [
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}),
            json!({"kind": "Pod", "apiVersion": "v1"}),
        ];
        let items = items.map(|item| crate::cbor::encode_value(&item));
        let read = |strip| crate::cbor::parse(&super::cbor("v1", "PodList", &meta, &items, strip));
        let mut list = read(false).unwrap();
        assert_eq!(list["items"][0]["kind"], "Pod");
        list["items"] = json!([{"metadata": {"name": "a"}}, {}]);
        assert_eq!(read(true).unwrap(), list);
        let metadata = json!({"resourceVersion": "7", "remainingItemCount": 3});
        assert_eq!(
            (&list["kind"], &list["metadata"]),
            (&json!("PodList"), &metadata)
        );
    }
}
