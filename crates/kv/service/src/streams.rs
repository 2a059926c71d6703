//! Long calls by hand: messages come out of a body one by one, and go into one in chunks of many.
//!
//! What answers a call has no task of its own: the body of the response drives it, so that a message costs one waking, and
//! whoever does not take answers is not worked for.

use crate::core::Core;
use crate::intake::Held;
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use std::convert::Infallible;
use std::fmt::Display;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tower::BoxError;

/// Compression flag and length before a message.
pub(crate) const PREFIX: usize = 5;

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
            let message = self.whole()?;
            self.held.now(self.bytes.len())?;
            if message.is_some() {
                return Ok(message);
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|e| Status::internal(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                self.core.meters.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                self.bytes.extend_from_slice(&data);
            }
        }
    }

    fn whole(&mut self) -> Result<Option<M>, Status> {
        let Some(length) = announced(&self.bytes)? else { return Ok(None) };
        if length > self.limit {
            return Err(too_large(length, self.limit));
        }
        let Some(message) = self.bytes.get(PREFIX..PREFIX + length) else { return Ok(None) };
        let message = M::decode(message).map_err(|e| Status::internal(e.to_string()))?;
        self.bytes.advance(PREFIX + length);
        Ok(Some(message))
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

/// Where the answers of a call go: one at a time.
pub(crate) struct Answers(Arc<Slot>);

type Slot = Mutex<Option<Result<Bytes, Status>>>;

impl Answers {
    /// Sends whole messages, or how the call ends, as soon as the connection has taken what was sent before.
    pub async fn send(&self, answer: Result<Bytes, Status>) {
        // A client that asks without end leaves time for others.
        tokio::task::consume_budget().await;
        let mut answer = Some(answer);
        // Nobody has to be woken: the body that takes an answer polls this again.
        poll_fn(|_| {
            let mut slot = self.0.lock();
            if slot.is_some() {
                return Poll::Pending;
            }
            *slot = answer.take();
            Poll::Ready(())
        })
        .await;
    }
}

/// The response that brings what `work` sends. It ends well with `work`, or with the first refusal that is sent.
pub(crate) fn response<W>(work: impl FnOnce(Answers) -> W) -> Response<Body>
where
    W: Future<Output = ()> + Send + 'static,
{
    let slot = Arc::default();
    let work = Some(Box::pin(work(Answers(Arc::clone(&slot)))));
    let mut response = Response::new(Body::new(Driven { work, slot, over: false }));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

struct Driven<W> {
    work: Option<Pin<Box<W>>>,
    slot: Arc<Slot>,
    over: bool,
}

impl<W: Future<Output = ()>> http_body::Body for Driven<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut answer = self.slot.lock().take();
        if answer.is_none()
            && let Some(work) = &mut self.work
        {
            if work.as_mut().poll(cx).is_ready() {
                self.work = None;
            }
            answer = self.slot.lock().take();
        }
        let end = match answer {
            Some(Ok(chunk)) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
            Some(Err(status)) => status,
            None if self.work.is_some() => return Poll::Pending,
            None => Status::ok(""),
        };
        (self.over, self.work) = (true, None);
        let mut trailers = HeaderMap::with_capacity(2);
        if end.add_header(&mut trailers).is_err() {
            trailers.insert("grpc-status", HeaderValue::from_static("13"));
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
