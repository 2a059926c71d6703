//! gzip for large responses to clients that accept it.

use crate::body::{Body, full_body};
use crate::context::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http::{HeaderMap, Response};
use std::io::Write;

/// Minimum size of a compressed response in bytes: upstream's threshold.
pub const THRESHOLD: usize = 128 * 1024;

/// Puts `bytes` into a response, compressed if they are large enough and the client accepts it.
pub fn compress_response(
    context: &Context,
    response: Response<Body>,
    bytes: Vec<u8>,
) -> Response<Body> {
    // The body of `response` is empty: its headers are built before the size of the body is known.
    let (mut parts, _) = response.into_parts();
    if bytes.len() < THRESHOLD || !accepts_gzip(context) {
        return Response::from_parts(parts, full_body(bytes));
    }
    match gzip_bytes(&bytes) {
        Some(packed) => {
            mark_compressed(&mut parts.headers);
            Response::from_parts(parts, full_body(packed))
        }
        None => Response::from_parts(parts, full_body(bytes)),
    }
}

/// Returns whether the client accepts gzip.
pub fn accepts_gzip(context: &Context) -> bool {
    let accepted = context.header("accept-encoding");
    accepted
        .split(',')
        .any(|e| e.trim().split(';').next() == Some("gzip"))
}

/// Sets the headers of a compressed response.
pub fn mark_compressed(headers: &mut HeaderMap) {
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    // Caches between client and server must not serve compressed bytes to other clients.
    headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
}

fn gzip_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    // Level 1, as upstream: higher levels need much more processor time for little.
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 6), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}
