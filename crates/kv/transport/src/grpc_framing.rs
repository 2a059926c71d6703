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
