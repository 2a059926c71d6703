//! Hand-written gRPC streaming: decodes messages from a body one by one, and sends responses in
//! chunks of several.
//!
//! A call's handler has no task of its own: polling the response body drives it. So a message costs
//! a single wake-up, and no work is done for a client that does not read.

use crate::grpc_framing::{PREFIX, announced_length, decode_message, too_large};
use crate::request_limits::{ClientTraffic, MemoryReservation};
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
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tower::BoxError;

/// Body of a request, from a real or a simulated connection.
pub trait RequestBody:
    http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static
{
}
impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError> + Display> + Send + Unpin + 'static>
    RequestBody for B
{
}

/// Decodes the messages of a request body.
pub struct Requests<M, B> {
    traffic: Arc<ClientTraffic>,
    body: B,
    bytes: BytesMut,
    held: MemoryReservation,
    kind: PhantomData<fn() -> M>,
}

impl<M: Message + Default, B: RequestBody> Requests<M, B> {
    /// Reads from a body. `held` is the memory that buffered messages are reserved in.
    pub fn new(traffic: Arc<ClientTraffic>, held: MemoryReservation, body: B) -> Self {
        Requests {
            traffic,
            body,
            bytes: BytesMut::new(),
            held,
            kind: PhantomData,
        }
    }

    /// Returns the next message, or `None` after the last. Cancel-safe.
    pub async fn message(&mut self) -> Result<Option<M>, Status> {
        loop {
            let message = self.whole()?;
            self.held.now(self.bytes.len())?;
            if message.is_some() {
                return Ok(message);
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|e| Status::internal(e.to_string()))?;
            if let Ok(data) = frame.into_data() {
                self.traffic.count_received(data.len());
                self.bytes.extend_from_slice(&data);
            }
        }
    }

    fn whole(&mut self) -> Result<Option<M>, Status> {
        let Some(length) = announced_length(&self.bytes)? else {
            return Ok(None);
        };
        let limit = self.traffic.max_message;
        if length > limit {
            return Err(too_large(length, limit));
        }
        let Some(message) = self.bytes.get(PREFIX..PREFIX + length) else {
            return Ok(None);
        };
        let message = decode_message(message)?;
        self.bytes.advance(PREFIX + length);
        Ok(Some(message))
    }
}

/// Sender of a call's responses. It holds one at a time.
pub struct ResponseSender(Arc<Slot>);

type Slot = Mutex<Option<Result<Bytes, Status>>>;

impl ResponseSender {
    /// Sends encoded messages, or the final status, after the connection has read the previous
    /// ones.
    pub async fn send(&self, answer: Result<Bytes, Status>) {
        // Yields to other tasks if a client sends requests without end.
        tokio::task::consume_budget().await;
        let mut answer = Some(answer);
        // No waker is needed: the body that reads a response polls this future again.
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

/// Returns the response whose body is what `work` sends. The status is OK when `work` ends, or the
/// first error that is sent.
pub fn streaming_response<W>(work: impl FnOnce(ResponseSender) -> W) -> Response<Body>
where
    W: Future<Output = ()> + Send + 'static,
{
    let slot = Arc::default();
    let work = Some(Box::pin(work(ResponseSender(Arc::clone(&slot)))));
    let mut response = Response::new(Body::new(DrivenBody {
        work,
        slot,
        over: false,
    }));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}

struct DrivenBody<W> {
    work: Option<Pin<Box<W>>>,
    slot: Arc<Slot>,
    over: bool,
}

impl<W: Future<Output = ()>> http_body::Body for DrivenBody<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
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
