//! Hand-written gRPC streaming: decodes messages from a body one by one, and sends responses in
//! chunks of several.
//!
//! A call's handler has no task of its own: polling the response body drives it. So a message costs
//! a single wake-up, and no work is done for a client that does not read.

use crate::grpc_framing::{PREFIX, announced_length, decode_message, too_large};
use crate::request_body::RequestBody;
use crate::request_limits::{ClientTraffic, MemoryReservation};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prost::Message;
use std::convert::Infallible;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

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
            // `bytes` keeps what has arrived, so the caller's `select!` may drop this future.
            let message = self.decode_buffered()?;
            self.held.set_reserved(self.bytes.len())?;
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

    fn decode_buffered(&mut self) -> Result<Option<M>, Status> {
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
    let slot = Arc::<Slot>::default();
    let work = Some(Box::pin(work(ResponseSender(slot.clone()))));
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
        // The slot is emptied first: the work can't send while it is full, so a client that does
        // not read stops the work.
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
        // The work is dropped here and not with the connection, which releases its watchers at
        // once.
        (self.over, self.work) = (true, None);
        let mut trailers = HeaderMap::with_capacity(2);
        // A message with bytes that no header may contain. 13 is INTERNAL.
        if end.add_header(&mut trailers).is_err() {
            trailers.insert("grpc-status", HeaderValue::from_static("13"));
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Pieces;
    use http::Extensions;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The strings `a` and `b` as messages (google.protobuf.StringValue).
    const TWO: &[u8] = b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x0a\x01b";

    fn requests(limit: usize, pieces: &[&[u8]]) -> Requests<String, Pieces> {
        let traffic = ClientTraffic::new(limit);
        let held = MemoryReservation::for_request(&traffic, &Extensions::new());
        Requests::new(traffic, held, Pieces::new(pieces))
    }

    #[tokio::test]
    async fn messages_are_independent_of_the_pieces_that_they_arrive_in() {
        for cut in 0..TWO.len() {
            let (first, second) = TWO.split_at(cut);
            let mut requests = requests(3, &[first, second]);
            assert_eq!(
                requests.message().await.unwrap(),
                Some("a".to_owned()),
                "{cut}"
            );
            assert_eq!(
                requests.message().await.unwrap(),
                Some("b".to_owned()),
                "{cut}"
            );
            assert_eq!(requests.message().await.unwrap(), None, "{cut}");
            assert_eq!(requests.traffic.received(), TWO.len() as u64);
        }
    }

    #[tokio::test]
    async fn message_of_a_stream_above_the_limit_is_rejected() {
        let rejected = requests(2, &[TWO]).message().await.unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn received_messages_that_are_not_read_yet_are_kept_when_a_wait_is_cancelled() {
        let traffic = ClientTraffic::new(10);
        let held = MemoryReservation::for_request(&traffic, &Extensions::new());
        let body = Pieces::open(&[&TWO[..4], &TWO[4..6]]);
        let mut requests: Requests<String, Pieces> = Requests::new(traffic, held, body);
        tokio::select! {
            biased;
            _ = requests.message() => panic!("the message is incomplete"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(&requests.bytes[..], &TWO[..6]);
    }

    async fn frames(response: Response<Body>) -> (Vec<Bytes>, HeaderMap) {
        let (mut body, mut data) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            match frame.unwrap().into_data() {
                Ok(chunk) => data.push(chunk),
                Err(frame) => return (data, frame.into_trailers().unwrap()),
            }
        }
        panic!("a stream without a status");
    }

    #[tokio::test]
    async fn stream_ends_with_ok_after_all_responses() {
        let response = streaming_response(|responses| async move {
            responses.send(Ok(Bytes::from_static(b"1"))).await;
            responses.send(Ok(Bytes::from_static(b"2"))).await;
        });
        let (data, trailers) = frames(response).await;
        assert_eq!(data, ["1", "2"]);
        assert_eq!(trailers["grpc-status"], "0");
    }

    #[tokio::test]
    async fn error_ends_the_stream_and_its_work() {
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = steps.clone();
        let response = streaming_response(|responses| async move {
            responses.send(Ok(Bytes::from_static(b"1"))).await;
            responses.send(Err(Status::not_found("no lease"))).await;
            responses.send(Ok(Bytes::from_static(b"2"))).await;
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (data, trailers) = frames(response).await;
        assert_eq!(data, ["1"]);
        assert_eq!(trailers["grpc-status"], "5");
        assert_eq!(trailers["grpc-message"], "no%20lease");
        assert_eq!(steps.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn client_that_does_not_read_stops_the_work() {
        let steps = Arc::new(AtomicUsize::new(0));
        let counted = steps.clone();
        let response = streaming_response(|responses| async move {
            loop {
                responses.send(Ok(Bytes::from_static(b"1"))).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut body = response.into_body();
        assert_eq!(steps.load(Ordering::Relaxed), 0, "nothing was read");
        for read in 1..=3 {
            body.frame().await.unwrap().unwrap();
            assert_eq!(
                steps.load(Ordering::Relaxed),
                read,
                "computed what was read"
            );
        }
    }
}
