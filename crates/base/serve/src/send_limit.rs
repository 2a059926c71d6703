//! Time limits of sending responses.
//!
//! hyper polls a body only while the connection takes data, so that a deadline in the body of a
//! client that does not read would never fire. The deadline is therefore kept by the task that
//! polls the response: one for each stream of HTTP/2, that of the connection in HTTP/1.

use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

thread_local! {
    /// Deadline of the response that the task which runs on this thread sends.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Limits the time for sending the current request's response, from now. A service calls it from
/// its future. At the deadline, the stream is reset (HTTP/2) or the connection is closed (HTTP/1).
///
/// Data that the connection has buffered already, at most the last frame of the body, are not
/// limited in HTTP/2.
pub fn limit_sending(limit: Duration) {
    // A limit that the clock can't represent is none.
    DEADLINE.set(Instant::now().checked_add(limit));
}

/// Removes the deadline at the end of a body: an HTTP/1 connection is used again.
pub(crate) struct SendGuard;

impl Drop for SendGuard {
    fn drop(&mut self) {
        DEADLINE.set(None);
    }
}

/// Spawns the tasks of HTTP/2 streams, with the deadlines of their responses.
#[derive(Clone)]
pub(crate) struct LimitedExecutor;

impl<F> Executor<F> for LimitedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        // Dropping the future of a stream that is still open resets it.
        TokioExecutor::new().execute(run_limited(future));
    }
}

/// Runs a future until the deadline that it sets; `None` if it was dropped at the deadline.
pub(crate) fn run_limited<F: Future>(future: F) -> LimitedFuture<F> {
    LimitedFuture {
        future: Box::pin(future),
        deadline: None,
        sleep: None,
    }
}

/// A future with the deadline that it sets. A type of its own, because the compiler can't prove
/// that an `async fn` over the future of a connection is `Send`.
pub(crate) struct LimitedFuture<F> {
    future: Pin<Box<F>>,
    deadline: Option<Instant>,
    /// Created when a response has to wait, which few have.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for LimitedFuture<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        DEADLINE.set(self.deadline);
        let polled = self.future.as_mut().poll(context);
        self.deadline = DEADLINE.take();
        if let Poll::Ready(output) = polled {
            return Poll::Ready(Some(output));
        }
        let Some(deadline) = self.deadline else {
            self.sleep = None;
            return Poll::Pending;
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(context).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use std::future::pending;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::{mpsc, oneshot};
    use tokio_util::sync::CancellationToken;

    #[tokio::test(start_paused = true)]
    async fn response_that_is_not_sent_ends_at_its_deadline() {
        let stuck = run_limited(async {
            limit_sending(Duration::from_millis(20));
            pending::<()>().await;
        });
        let ended = tokio::time::timeout(Duration::from_secs(60), stuck).await;
        assert_eq!(ended, Ok(None));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_outlives_a_response_that_was_sent() {
        let connection = run_limited(async {
            let body = SendGuard;
            limit_sending(Duration::from_millis(1));
            drop(body);
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        assert_eq!(connection.await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_belongs_to_its_task() {
        let limited = run_limited(async {
            limit_sending(Duration::from_millis(10));
            pending::<()>().await;
        });
        let other = run_limited(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        assert_eq!(tokio::join!(limited, other), (None, Some(())));
    }

    /// A body without an end, which a client must read.
    struct Endless(#[expect(dead_code, reason = "dropped with the body")] oneshot::Sender<()>);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; 64 * 1024])))))
        }
    }

    /// Serves `/endless`, whose end is sent to `ended`, and `ok` on other paths.
    async fn start_server(ended: mpsc::Sender<oneshot::Receiver<()>>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = service_fn(move |request: Request<Incoming>| {
            let ended = ended.clone();
            async move {
                limit_sending(Duration::from_millis(500));
                if request.uri().path() != "/endless" {
                    return Ok::<_, Infallible>(Response::new(Full::from("ok").boxed_unsync()));
                }
                let (sender, receiver) = oneshot::channel();
                ended.send(receiver).await.unwrap();
                Ok(Response::new(Endless(sender).boxed_unsync()))
            }
        });
        let options = crate::Options::default();
        let shutdown = CancellationToken::new();
        tokio::spawn(crate::serve_http(listener, options, service, shutdown));
        address
    }

    async fn send_get(stream: &mut TcpStream, path: &str) {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
    }

    async fn read_ok(stream: &mut TcpStream) {
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\nok") {
            let read = stream.read_buf(&mut received).await.unwrap();
            assert!(read > 0, "the server closed the connection");
        }
    }

    #[tokio::test]
    async fn connection_of_http1_ends_with_a_response_that_is_not_read_only() {
        let (sender, mut ended) = mpsc::channel(1);
        let address = start_server(sender).await;
        let mut reading = TcpStream::connect(address).await.unwrap();
        send_get(&mut reading, "/").await;
        read_ok(&mut reading).await;
        let mut stuck = TcpStream::connect(address).await.unwrap();
        send_get(&mut stuck, "/endless").await;
        let body = ended.recv().await.unwrap();
        let dropped = tokio::time::timeout(Duration::from_secs(60), body).await;
        assert!(dropped.unwrap().is_err(), "the body ends at its deadline");
        // The deadline of the first response has passed, too.
        send_get(&mut reading, "/").await;
        read_ok(&mut reading).await;
    }
}
