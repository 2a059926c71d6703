//! Hand-written unary gRPC: one message in, one message out, without routing and stream buffers.

use crate::grpc_framing::{PREFIX, announced_length, too_large};
use crate::request_body::RequestBody;
use crate::request_limits::{ClientTraffic, DEADLINE, MemoryReservation, too_slow};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;

/// Receives the only message of a call, without its prefix. `held` gets the memory that it
/// occupies.
///
/// # Errors
/// The message is incomplete, larger than the limit, or does not arrive within `DEADLINE`.
pub async fn receive_message(
    traffic: &ClientTraffic,
    held: &mut MemoryReservation,
    body: impl RequestBody,
) -> Result<Bytes, Status> {
    let received = tokio::time::timeout(DEADLINE, receive_frames(traffic, held, body));
    received.await.unwrap_or_else(|_| Err(too_slow()))
}

async fn receive_frames(
    traffic: &ClientTraffic,
    held: &mut MemoryReservation,
    mut body: impl RequestBody,
) -> Result<Bytes, Status> {
    let limit = traffic.max_message;
    let mut bytes = Bytes::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::internal(e.to_string()))?;
        let Ok(data) = frame.into_data() else {
            // Trailers, which gRPC requests don't have.
            continue;
        };
        traffic.count_received(data.len());
        held.reserve_more(data.len())?;
        bytes = if bytes.is_empty() {
            data
        } else {
            join_chunks(bytes, &data)
        };
        if let Some(length) = announced_length(&bytes)?
            && length > limit
        {
            return Err(too_large(length, limit));
        }
        // The end usually arrives with the message; polling for it would cost another wake-up.
        if http_body::Body::is_end_stream(&body) {
            break;
        }
    }
    match announced_length(&bytes)? {
        None => Err(Status::internal("Missing request message.")),
        Some(length) if bytes.len() != PREFIX + length => {
            Err(Status::internal("Unexpected EOF decoding stream."))
        }
        Some(_) => {
            bytes.advance(PREFIX);
            Ok(bytes)
        }
    }
}

/// Joins received chunks. The buffer grows with the received data, not with the announced length.
fn join_chunks(first: Bytes, more: &[u8]) -> Bytes {
    let mut whole = first
        .try_into_mut()
        .unwrap_or_else(|first| BytesMut::from(first.as_ref()));
    whole.extend_from_slice(more);
    whole.freeze()
}

/// Returns the response with one encoded message, which has its prefix, and the status OK.
pub fn unary_response(traffic: &ClientTraffic, message: Bytes) -> Response<Body> {
    traffic.count_sent(message.len());
    let mut response = Response::new(Body::new(UnaryBody {
        message: Some(message),
        over: false,
    }));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}

/// Body with one message and the status OK.
struct UnaryBody {
    message: Option<Bytes>,
    over: bool,
}

impl http_body::Body for UnaryBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.over, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        // Not with the message: HTTP/2 would then end the stream without the status.
        self.over
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::Pieces;
    use http::Extensions;

    const FRAME: &[u8] = b"\0\0\0\0\x03abc";

    async fn receive(limit: usize, body: Pieces) -> Result<Bytes, Status> {
        let traffic = ClientTraffic::new(limit);
        let mut held = MemoryReservation::for_request(&traffic, &Extensions::new());
        receive_message(&traffic, &mut held, body).await
    }

    #[tokio::test]
    async fn message_in_pieces_is_joined() {
        for cut in 0..FRAME.len() {
            let (first, second) = FRAME.split_at(cut);
            let message = receive(3, Pieces::new(&[first, second])).await.unwrap();
            assert_eq!(&message[..], b"abc", "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn message_above_the_limit_is_rejected_by_its_prefix() {
        let rejected = receive(2, Pieces::open(&[&FRAME[..PREFIX]]))
            .await
            .unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn call_has_exactly_one_whole_message() {
        for (body, text) in [
            (&[][..], "Missing request message."),
            (&FRAME[..4], "Missing request message."),
            (&FRAME[..7], "Unexpected EOF decoding stream."),
            (
                &[FRAME, FRAME].concat()[..],
                "Unexpected EOF decoding stream.",
            ),
        ] {
            let rejected = receive(10, Pieces::new(&[body])).await.unwrap_err();
            assert_eq!(
                (rejected.code(), rejected.message()),
                (tonic::Code::Internal, text),
                "{body:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_does_not_arrive_in_time_is_rejected() {
        let rejected = receive(10, Pieces::open(&[&FRAME[..7]])).await.unwrap_err();
        assert_eq!(rejected.code(), tonic::Code::DeadlineExceeded);
        assert!(rejected.message().contains("20 s"), "{rejected}");
    }

    #[tokio::test]
    async fn response_is_a_message_and_then_the_status() {
        let traffic = ClientTraffic::new(10);
        let response = unary_response(&traffic, Bytes::from_static(FRAME));
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let mut body = response.into_body();
        let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&data[..], FRAME);
        assert!(
            !http_body::Body::is_end_stream(&body),
            "the status is missing"
        );
        let trailers = body.frame().await.unwrap().unwrap();
        assert_eq!(trailers.into_trailers().unwrap()["grpc-status"], "0");
        assert!(body.frame().await.is_none());
        assert_eq!(traffic.sent(), FRAME.len() as u64);
    }
}
