//! The frame around protobuf objects: `k8s\0` and a `runtime.Unknown`.

use crate::DecodeError;
use crate::proto::wire::{Reader, Wire, write_bytes, write_nested, write_tag, write_varint};

/// First bytes of a protobuf object.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Envelope of an encoded object (`runtime.Unknown`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// `group/version`, or `v1`.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// The encoded message.
    pub raw: &'a [u8],
    /// Encoding of `raw`; empty for none.
    pub content_encoding: &'a str,
    /// Media type of `raw`; empty for protobuf.
    pub content_type: &'a str,
}

/// The bytes after the content of an envelope: the empty fields 3 and 4, which upstream writes
/// nevertheless.
pub(crate) const TAIL: &[u8] = b"\x1a\x00\x22\x00";

/// Wraps an encoded message in an envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 24);
    begin(api_version, kind, raw.len(), &mut out);
    out.extend_from_slice(raw);
    out.extend_from_slice(TAIL);
    out
}

/// Appends an envelope to `out`, with the content that `body` writes.
pub(crate) fn wrap_with(
    api_version: &str,
    kind: &str,
    out: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    write_type(api_version, kind, out);
    write_nested(2, out, body);
    out.extend_from_slice(TAIL);
}

/// Appends an envelope up to its content, which has this length.
pub(crate) fn begin(api_version: &str, kind: &str, length: usize, out: &mut Vec<u8>) {
    write_type(api_version, kind, out);
    write_tag(2, 2, out);
    write_varint(length as u64, out);
}

fn write_type(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    write_nested(1, out, |out| {
        write_bytes(1, api_version.as_bytes(), out);
        write_bytes(2, kind.as_bytes(), out);
    });
}

/// Parses an envelope.
pub fn unwrap(bytes: &[u8]) -> Result<Unknown<'_>, DecodeError> {
    // Protobuf has no marker of its own, and most bytes can be read as some message.
    let body = bytes.strip_prefix(&MAGIC).ok_or_else(|| {
        DecodeError::Syntax("provided data does not appear to be a protobuf message".to_owned())
    })?;
    let mut unknown = Unknown::default();
    let mut reader = Reader::new(body);
    while let Some((number, wire)) = reader.field()? {
        let Wire::Bytes(bytes) = wire else { continue };
        match number {
            1 => (unknown.api_version, unknown.kind) = type_meta(bytes)?,
            2 => unknown.raw = bytes,
            3 => unknown.content_encoding = read_text(bytes)?,
            4 => unknown.content_type = read_text(bytes)?,
            _ => {}
        }
    }
    Ok(unknown)
}

fn type_meta(bytes: &[u8]) -> Result<(&str, &str), DecodeError> {
    let (mut api_version, mut kind) = ("", "");
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => api_version = read_text(bytes)?,
            (2, Wire::Bytes(bytes)) => kind = read_text(bytes)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

fn read_text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes)
        .map_err(|_| DecodeError::Syntax("proto: invalid UTF-8 in the frame".to_owned()))
}
