//! Request and response bodies.

use api_meta::{ApiError, Reason};
use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use std::time::Duration;

/// Maximum size of a request body: upstream's limit.
pub const LIMIT: usize = 3 * 1024 * 1024;
/// Maximum number of unread bytes that are discarded, so that a client which is still sending
/// receives the response instead of a connection reset.
const DISCARDED: usize = 32 * 1024 * 1024;
// Below the default request timeout: a slow sender releases its seat early and learns the cause.
const DEADLINE: Duration = Duration::from_secs(30);
// Bounds the delay of a response to a client that sends slowly.
const DISCARD_FOR: Duration = Duration::from_secs(1);

/// An error that ends a streamed body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Creates a body from bytes.
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Replaces a body by an empty one; `Content-Length` keeps the length of the omitted body if that
/// is known.
pub fn omit_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    // hyper omits the body of a response to HEAD in HTTP/1.1 only. In HTTP/2, clients report DATA
    // as a protocol error.
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        parts
            .headers
            .entry(CONTENT_LENGTH)
            .or_insert_with(|| length.into());
    }
    Response::from_parts(parts, full_body(Bytes::new()))
}

/// A request's body until a handler takes it. A body that no handler took is discarded before the
/// response is sent, so that a client which is still sending receives the response instead of a
/// connection reset.
pub struct Payload(Option<Incoming>);

impl Payload {
    /// Wraps an unread body.
    pub fn new(body: Incoming) -> Self {
        Payload(Some(body))
    }

    /// Reads the whole body, within the size limit and the deadline.
    ///
    /// # Errors
    /// 413, or 400 if the body does not arrive.
    pub async fn read_all(&mut self) -> Result<Bytes, ApiError> {
        match self.0.take() {
            Some(body) => read_body(body).await,
            None => Ok(Bytes::new()),
        }
    }

    /// Takes the stream itself, for proxies.
    pub fn take_stream(&mut self) -> Option<Incoming> {
        self.0.take()
    }

    /// Discards the body unless a handler took it.
    pub async fn discard_rest(&mut self) {
        if let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) {
            // If the client stops sending, the response is sent all the same.
            let _ = tokio::time::timeout(DISCARD_FOR, drain_body(body)).await;
        }
    }
}

/// Reads a body and discards its data.
async fn drain_body<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        seen += frame.data_ref().map_or(0, Bytes::len);
        if seen > DISCARDED {
            return;
        }
    }
}

/// Reads a request's body within the size limit and the deadline.
async fn read_body(body: Incoming) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(DEADLINE, collect_body(body)).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::bad_request(
            "the request's body did not arrive in time",
        )),
    }
}

async fn collect_body(mut body: Incoming) -> Result<Bytes, ApiError> {
    let (mut bytes, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|_| ApiError::bad_request("the request's body could not be read"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        // Counted past the limit, and discarded: the client reads a response only after it has sent
        // all.
        seen += data.len();
        if seen <= LIMIT {
            bytes.extend_from_slice(&data);
        } else if seen > DISCARDED {
            break;
        }
    }
    if seen > LIMIT {
        return Err(ApiError::new(
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {LIMIT}"),
        ));
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_body_ends_the_stream_and_keeps_its_length() {
        let response = omit_body(Response::new(full_body("four")));
        assert!(response.body().is_end_stream());
        assert_eq!(response.headers()[CONTENT_LENGTH], "4");
    }

    #[test]
    fn omitted_empty_body_keeps_the_declared_length() {
        let mut response = Response::new(full_body(""));
        assert!(omit_body(response).headers().is_empty());
        response = Response::new(full_body(""));
        response.headers_mut().insert(CONTENT_LENGTH, 7.into());
        assert_eq!(omit_body(response).headers()[CONTENT_LENGTH], "7");
    }
}
