//! A response body with a deadline.

use crate::body::{Body, BodyError, stream_body};
use bytes::Bytes;
use hyper::body::Frame;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

/// Ends a body after `limit`. The timeout of a request ends with the head of its response, and an
/// extension server that sends the rest slowly would hold a connection for each of its clients.
pub fn limit_body(body: Body, limit: Duration) -> Body {
    let ends = Box::pin(tokio::time::sleep(limit));
    stream_body(TimedBody { body, ends }, 0)
}

struct TimedBody {
    body: Body,
    ends: Pin<Box<Sleep>>,
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ends.as_mut().poll(context).is_ready() {
            // An error, so that no client takes the part for the whole.
            let error = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(Box::new(error))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::full_body;
    use http_body_util::BodyExt;

    /// Sends one byte every ten milliseconds, forever.
    struct Slow(Pin<Box<Sleep>>);

    impl hyper::body::Body for Slow {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            std::task::ready!(self.0.as_mut().poll(context));
            self.0 = Box::pin(tokio::time::sleep(Duration::from_millis(10)));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test]
    async fn slow_body_ends_in_an_error() {
        let slow = stream_body(Slow(Box::pin(tokio::time::sleep(Duration::ZERO))), 0);
        let collected = limit_body(slow, Duration::from_millis(200)).collect();
        let ended = tokio::time::timeout(Duration::from_secs(60), collected).await;
        assert!(ended.is_ok_and(|body| body.is_err()));
    }

    #[tokio::test]
    async fn body_in_time_is_unchanged() {
        let body = limit_body(full_body("abc"), Duration::from_secs(60));
        let bytes = body.collect().await.map(|body| body.to_bytes());
        assert_eq!(bytes.ok().as_deref(), Some(&b"abc"[..]));
    }
}
