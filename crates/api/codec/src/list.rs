//! Joins encoded items into list bodies.

use crate::envelope;
use crate::json::write_string;
use crate::proto::wire::{write_bytes, write_int, write_nested};

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

/// Joins items into a JSON list. Each item is an object encoded by `json::encode`. If
/// `strip_type_meta` is set, its leading `kind` and `apiVersion` are omitted, as upstream does for
/// built-in kinds.
pub fn json<'a>(
    api_version: &str,
    kind: &str,
    meta: &ListMeta,
    items: impl IntoIterator<Item = &'a [u8]>,
    strip_type_meta: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(b"{\"kind\":");
    write_string(kind, &mut out);
    out.extend_from_slice(b",\"apiVersion\":");
    write_string(api_version, &mut out);
    out.extend_from_slice(b",\"metadata\":{");
    write_meta(meta, &mut out);
    out.extend_from_slice(b"},\"items\":[");
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
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
    out.extend_from_slice(b"]}");
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

/// Joins items (messages without an envelope) into a protobuf list with an envelope.
pub fn proto<'a>(
    api_version: &str,
    kind: &str,
    meta: &ListMeta,
    items: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    envelope::wrap_with(api_version, kind, &mut out, |out| {
        write_nested(1, out, |out| {
            // Field 1 is `selfLink`, which is always empty now, and gogo writes it nevertheless.
            write_bytes(1, b"", out);
            write_bytes(2, meta.resource_version.as_bytes(), out);
            write_bytes(3, meta.continue_token.as_bytes(), out);
            if let Some(count) = meta.remaining_item_count {
                write_int(4, count as u64, out);
            }
        });
        for item in items {
            write_bytes(2, item, out);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
            String::from_utf8(json("v1", "PodList", &meta, items, true)).unwrap(),
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{}]}"#
        );
        let bytes = proto("v1", "PodList", &meta, [&b"\x0a\x00"[..]]);
        let schema = api_schema::schema()
            .message("k8s.io.api.core.v1.PodList")
            .unwrap();
        let list = crate::proto::decode_object(schema, &bytes).unwrap();
        assert_eq!(list["metadata"]["resourceVersion"], "7");
        assert_eq!(list["items"].as_array().unwrap().len(), 1);
        assert_eq!(list["kind"], "PodList");
    }
}
