//! Framing of gRPC messages: each has a prefix of a compression flag and a length.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::HeaderMap;
use prost::Message;
use tonic::Status;

/// Size in bytes of the compression flag and length before a message.
pub const PREFIX: usize = 5;

/// Returns whether a request is a gRPC call.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Returns whether messages may be compressed. tonic rejects those.
pub fn is_compressed(headers: &HeaderMap) -> bool {
    headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}

/// Returns the length of the next message, once it is known.
pub fn announced_length(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some(&[compressed, a, b, c, d]) = bytes.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    // Messages with another `grpc-encoding` do not come here, so the flag contradicts the headers.
    if compressed != 0 {
        return Err(Status::internal(
            "protocol error: received message with compressed-flag but no grpc-encoding was specified",
        ));
    }
    Ok(Some(u32::from_be_bytes([a, b, c, d]) as usize))
}

/// Returns the error for a message that is too large, with the text of Go's servers.
pub fn too_large(length: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: received message larger than max ({length} vs. {limit})"
    ))
}

/// Decodes a message. `bytes` has no prefix.
pub fn decode_message<M: Message + Default>(bytes: impl Buf) -> Result<M, Status> {
    M::decode(bytes).map_err(|e| Status::internal(e.to_string()))
}

/// Encodes a message with its prefix.
pub fn frame_message(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.encoded_len());
    frame_into(&mut bytes, message);
    bytes.freeze()
}

/// Appends a message with its prefix.
pub fn frame_into(bytes: &mut BytesMut, message: &impl Message) {
    let length = message.encoded_len();
    bytes.reserve(PREFIX + length);
    put_prefix(bytes, length);
    // The capacity is sufficient, so this can't fail.
    let _ = message.encode(bytes);
}

/// Appends the prefix of a message of this length.
pub fn put_prefix(bytes: &mut BytesMut, length: usize) {
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::HeaderValue;

    #[test]
    fn frame_is_a_flag_a_length_and_the_message() {
        // A string encodes as google.protobuf.StringValue: field 1.
        let frame = frame_message(&"abc".to_owned());
        assert_eq!(&frame[..], b"\0\0\0\0\x05\x0a\x03abc");
        assert_eq!(announced_length(&frame).unwrap(), Some(5));
        let decoded: String = decode_message(&frame[PREFIX..]).unwrap();
        assert_eq!(decoded, "abc");
    }

    #[test]
    fn empty_message_is_a_prefix_alone() {
        assert_eq!(&frame_message(&String::new())[..], [0; PREFIX]);
    }

    #[test]
    fn messages_are_appended_to_the_same_buffer() {
        let mut bytes = BytesMut::new();
        frame_into(&mut bytes, &"a".to_owned());
        frame_into(&mut bytes, &"b".to_owned());
        assert_eq!(&bytes[..], b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x0a\x01b");
    }

    #[test]
    fn length_is_known_with_the_whole_prefix() {
        let prefix = [0, 0xff, 0xff, 0xff, 0xff];
        for length in 0..PREFIX {
            assert_eq!(
                announced_length(&prefix[..length]).unwrap(),
                None,
                "{length} bytes"
            );
        }
        assert_eq!(announced_length(&prefix).unwrap(), Some(u32::MAX as usize));
    }

    #[test]
    fn compressed_message_without_an_encoding_is_rejected() {
        let rejected = announced_length(&[1, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::Internal);
        assert!(rejected.message().contains("compressed"), "{rejected}");
    }

    #[test]
    fn every_encoding_but_identity_is_a_compression() {
        for (encoding, expect) in [
            (None, false),
            (Some("identity"), false),
            (Some("gzip"), true),
            (Some("snappy"), true),
            (Some(""), true),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(encoding) = encoding {
                headers.insert("grpc-encoding", HeaderValue::from_static(encoding));
            }
            assert_eq!(is_compressed(&headers), expect, "{encoding:?}");
        }
    }

    #[test]
    fn content_type_tells_grpc_from_http() {
        for (kind, expect) in [
            (None, false),
            (Some("application/grpc"), true),
            (Some("application/grpc+proto"), true),
            (Some("application/json"), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(kind) = kind {
                headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            assert_eq!(is_grpc(&headers), expect, "{kind:?}");
        }
    }

    #[test]
    fn too_large_message_has_the_code_and_text_of_grpc_go() {
        let rejected = too_large(10, 5);
        assert_eq!(rejected.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            rejected.message(),
            "grpc: received message larger than max (10 vs. 5)"
        );
    }

    #[test]
    fn malformed_message_is_rejected() {
        // A field of five bytes of which one is there.
        let rejected = decode_message::<String>(&b"\x0a\x05a"[..]).unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::Internal);
    }
}
