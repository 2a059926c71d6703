//! Long calls by hand: messages come out of a body one by one, and go into one in chunks of many.

use crate::core::Core;
use crate::intake::Held;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use prost::Message;
use std::convert::Infallible;
use std::fmt::Display;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tower::BoxError;

/// Compression flag and length before a message.
pub(crate) const PREFIX: usize = 5;
/// Chunks made and not yet taken by the connection.
const READY: usize = 16;

/// A request's body, from a connection or from a simulated one.
pub(crate) trait RequestBody:
    http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static
{
}
impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static> RequestBody for B {}

/// The messages of a client, as they come.
pub(crate) struct Requests<M, B> {
    core: Arc<Core>,
    body: B,
    bytes: BytesMut,
    held: Held,
    limit: usize,
    kind: PhantomData<fn() -> M>,
}

impl<M: Message + Default, B: RequestBody> Requests<M, B> {
    pub fn new(core: Arc<Core>, held: Held, body: B) -> Self {
        let limit = crate::grpc::decoding_limit(&core);
        Requests { core, body, bytes: BytesMut::new(), held, limit, kind: PhantomData }
    }

    /// The next message; none after the last. Dropping the future loses nothing.
    pub async fn message(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|e| Status::internal(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                self.core.meters.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                self.held.more(data.len())?;
                self.bytes.extend_from_slice(&data);
            }
        }
    }

    fn whole(&mut self) -> Result<Option<M>, Status> {
        let Some(length) = announced(&self.bytes)? else { return Ok(None) };
        if length > self.limit {
            return Err(too_large(length, self.limit));
        }
        if self.bytes.len() < PREFIX + length {
            return Ok(None);
        }
        self.bytes.advance(PREFIX);
        self.held.less(PREFIX + length);
        let message = self.bytes.split_to(length).freeze();
        M::decode(message).map(Some).map_err(|e| Status::internal(e.to_string()))
    }
}

/// The length of the message that is coming, once it is known.
pub(crate) fn announced(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some(&[compressed, a, b, c, d]) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    if compressed != 0 {
        return Err(Status::internal(
            "protocol error: received message with compressed-flag but no grpc-encoding was specified",
        ));
    }
    Ok(Some(u32::from_be_bytes([a, b, c, d]) as usize))
}

/// The refusal of a long message, as Go's servers word it.
pub(crate) fn too_large(length: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!("grpc: received message larger than max ({length} vs. {limit})"))
}

/// Where the answers of a call go: whole messages, or how it ends.
pub(crate) type Sender = mpsc::Sender<Result<Bytes, Status>>;

/// A way for the answers of a call, and the response that brings them.
pub(crate) fn response() -> (Sender, Response<Body>) {
    let (sender, receiver) = mpsc::channel(READY);
    let mut response = Response::new(Body::new(Chunks { receiver, over: false }));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    (sender, response)
}

struct Chunks {
    receiver: mpsc::Receiver<Result<Bytes, Status>>,
    over: bool,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let end = match ready!(self.receiver.poll_recv(cx)) {
            Some(Ok(chunk)) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.over = true;
        let mut trailers = HeaderMap::with_capacity(2);
        if end.add_header(&mut trailers).is_err() {
            trailers.insert("grpc-status", HeaderValue::from_static("13"));
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
