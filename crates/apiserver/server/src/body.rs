//! Request and response bodies.

use crate::response_budget::CountedResponse;
use crate::short_requests::SentResponse;
use api_meta::{ApiError, Reason};
use apiserver_audit::Record;
use apiserver_request::User;
use base_task::ComputeKind;
use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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

/// Bytes of an object or list from which on encoding and decoding take some ten milliseconds.
const LARGE: usize = 1024 * 1024;

/// Runs work for a user whose duration grows with `size` bytes; long work does not hold up other
/// requests.
pub async fn run_sized<T>(user: &User, size: usize, work: impl FnOnce() -> T) -> T {
    if size > LARGE {
        base_task::compute(user.compute_client(), ComputeKind::Body, work).await
    } else {
        work()
    }
}

/// An error that ends a streamed body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// Bytes that a connection gets at once. It buffers what the client does not take, and what it has
/// buffered is no longer subject to the deadline of the response.
const SLICE: usize = 64 * 1024;

/// The body of a response.
pub struct Body {
    source: Source,
    /// Bytes of memory that the body occupies until it is sent, and that are not counted yet.
    uncounted: usize,
    /// The audit of a long response, which ends with the body.
    _record: Option<Arc<Record>>,
    /// Counts the response until the body is sent.
    _sent: Option<SentResponse>,
}

enum Source {
    Bytes(Bytes),
    Stream {
        body: UnsyncBoxBody<Bytes, BodyError>,
        _counted: Option<CountedResponse>,
    },
}

/// Creates a body from bytes.
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    let bytes = bytes.into();
    Body {
        uncounted: bytes.len(),
        source: Source::Bytes(bytes),
        _record: None,
        _sent: None,
    }
}

/// Creates a body from bytes that all readers share, so that a reader occupies no memory.
pub fn shared_body(bytes: Bytes) -> Body {
    Body {
        source: Source::Bytes(bytes),
        uncounted: 0,
        _record: None,
        _sent: None,
    }
}

/// Creates a body that is produced while it is sent, and occupies `size` bytes meanwhile.
pub fn stream_body<B>(body: B, size: usize) -> Body
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
{
    Body {
        source: Source::Stream {
            body: body.boxed_unsync(),
            _counted: None,
        },
        uncounted: size,
        _record: None,
        _sent: None,
    }
}

impl Body {
    /// Returns the bytes of memory that have to be counted while the body is not sent.
    pub fn uncounted(&self) -> usize {
        self.uncounted
    }

    /// Keeps the audit of the request until the body ends.
    pub fn with_record(self, record: Arc<Record>) -> Self {
        Body {
            _record: Some(record),
            ..self
        }
    }

    /// Counts the response as being sent until the body is sent or dropped.
    pub fn with_sent(self, sent: Option<SentResponse>) -> Self {
        Body {
            _sent: sent,
            ..self
        }
    }

    /// Keeps `counted` until the memory of the body is released.
    pub fn with_counted(self, counted: CountedResponse) -> Self {
        let source = match self.source {
            Source::Bytes(bytes) => Source::Bytes(Bytes::from_owner(CountedBytes {
                bytes,
                _counted: counted,
            })),
            Source::Stream { body, .. } => Source::Stream {
                body,
                _counted: Some(counted),
            },
        };
        Body {
            source,
            uncounted: 0,
            ..self
        }
    }
}

/// Bytes of a body that are counted as long as a part of them exists, in the buffers of a
/// connection too.
struct CountedBytes {
    bytes: Bytes,
    _counted: CountedResponse,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().source {
            Source::Bytes(rest) if rest.is_empty() => Poll::Ready(None),
            Source::Bytes(rest) => {
                let slice = match rest.len() {
                    0..=SLICE => std::mem::take(rest),
                    _ => rest.split_to(SLICE),
                };
                Poll::Ready(Some(Ok(Frame::data(slice))))
            }
            Source::Stream { body, .. } => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Bytes(rest) => rest.is_empty(),
            Source::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Bytes(rest) => SizeHint::with_exact(rest.len() as u64),
            Source::Stream { body, .. } => body.size_hint(),
        }
    }
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
            // On the heap: almost no request needs it, and all have the size of its future.
            let _ = Box::pin(tokio::time::timeout(DISCARD_FOR, drain_body(body))).await;
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
    #![allow(clippy::unwrap_used)]
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

    #[tokio::test]
    async fn bytes_are_counted_while_a_slice_of_them_exists() {
        use crate::response_budget::{BudgetLimits, ResponseBudget};
        use apiserver_request::{RequestInfo, User};
        let limits = BudgetLimits {
            user: 1,
            ..BudgetLimits::default()
        };
        let (budget, user) = (ResponseBudget::new(limits), User::default());
        let is_full = || budget.check(&RequestInfo::default(), &user).is_err();
        let body = full_body(vec![b'x'; 2 * SLICE + 1]);
        let counted = budget.count(&user, body.uncounted());
        let mut body = body.with_counted(counted.unwrap());
        let (mut slices, mut length) = (Vec::new(), 0);
        while let Some(Ok(frame)) = body.frame().await {
            let slice = frame.into_data().unwrap_or_default();
            length += slice.len();
            slices.push(slice);
        }
        assert_eq!((slices.len(), length), (3, 2 * SLICE + 1));
        drop(body);
        slices.truncate(1);
        assert!(is_full(), "the connection has a slice");
        slices.clear();
        assert!(!is_full());
    }
}
