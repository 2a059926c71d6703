//! Request and response bodies.

use api_meta::{ApiError, Reason};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use std::time::Duration;

/// The largest body of a request: upstream's limit.
pub const LIMIT: usize = 3 * 1024 * 1024;
/// So much is read and thrown away, so that a client which is still sending sees the answer and not a reset.
const DISCARDED: usize = 32 * 1024 * 1024;
const DEADLINE: Duration = Duration::from_secs(30);
const DISCARD_FOR: Duration = Duration::from_secs(1);

/// Any failure that ends a streamed body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is there already.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A request's body until somebody takes it. What nobody took is read and thrown away before the answer is sent: a
/// client that is still sending would otherwise see a reset instead of the answer.
pub struct Payload(Option<Incoming>);

impl Payload {
    /// A body that nobody has read.
    pub fn new(body: Incoming) -> Self {
        Payload(Some(body))
    }

    /// All of it, within the limit and the deadline.
    ///
    /// # Errors
    /// 413, or 400 when it does not arrive.
    pub async fn read(&mut self) -> Result<Bytes, ApiError> {
        match self.0.take() {
            Some(body) => read(body).await,
            None => Ok(Bytes::new()),
        }
    }

    /// The stream itself, for proxies.
    pub fn take(&mut self) -> Option<Incoming> {
        self.0.take()
    }

    /// Throws away what nobody took.
    pub async fn discard(&mut self) {
        if let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) {
            // A client that sends nothing more gets its answer all the same.
            let _ = tokio::time::timeout(DISCARD_FOR, throw_away(body)).await;
        }
    }
}

/// Reads a body without keeping any of it.
async fn throw_away<B: http_body::Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        seen += frame.data_ref().map_or(0, Bytes::len);
        if seen > DISCARDED {
            return;
        }
    }
}

/// Reads a request's body within the limit and the deadline.
async fn read(body: Incoming) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(DEADLINE, collect(body)).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::bad_request("the request's body did not arrive in time")),
    }
}

async fn collect(mut body: Incoming) -> Result<Bytes, ApiError> {
    let (mut bytes, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::bad_request("the request's body could not be read"))?;
        let Ok(data) = frame.into_data() else { continue };
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
