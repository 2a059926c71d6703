//! Frames of a watch stream.

use crate::cbor::{self, MAP, write_head, write_text};
use crate::proto::wire::{write_bytes, write_nested};

/// Returns a JSON watch event with its newline. `object` is a complete JSON object.
pub fn json_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    // One event is one line, so that `kubectl get --raw` and scripts can split the stream.
    out.extend_from_slice(object.trim_ascii_end());
    out.extend_from_slice(b"}\n");
    out
}

/// Returns a protobuf watch event (`metav1.WatchEvent`) after its length in four bytes. `object` is
/// an object with its envelope.
pub fn proto_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend_from_slice(&[0; 4]);
    write_bytes(1, event.as_bytes(), &mut out);
    write_nested(2, &mut out, |out| write_bytes(1, object, out));
    // Messages of protobuf do not show where they end, so the length precedes them.
    let length = u32::try_from(out.len() - 4)
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    if let Some(head) = out.get_mut(..4) {
        head.copy_from_slice(&length);
    }
    out
}

/// Returns a CBOR watch event, an item of a CBOR sequence (RFC 8742). `object` is an encoded
/// object, with or without a mark.
pub fn cbor_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend_from_slice(&cbor::MAGIC);
    write_head(MAP, 2, &mut out);
    write_text("type", &mut out);
    write_text(event, &mut out);
    write_text("object", &mut out);
    if !object.starts_with(&cbor::MAGIC) {
        out.extend_from_slice(&cbor::MAGIC);
    }
    out.extend_from_slice(object);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_frames_have_their_format() {
        assert_eq!(
            json_frame("ADDED", b"{}\n"),
            b"{\"type\":\"ADDED\",\"object\":{}}\n"
        );
        assert_eq!(
            proto_frame("ADDED", b"ab"),
            b"\0\0\0\x0d\x0a\x05ADDED\x12\x04\x0a\x02ab"
        );
        assert_eq!(
            cbor_frame("ADDED", b"\xa0"),
            b"\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7\xa0"
        );
    }
}
