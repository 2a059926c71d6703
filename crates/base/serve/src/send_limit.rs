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
/// Data that a connection has buffered already have another limit: it is closed if its client takes
/// none of them for 60 s. They are up to 16 KiB of the connection, and in HTTP/2 up to
/// [`Http2Buffers::send`](crate::Http2Buffers::send) bytes and the frame after them.
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
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use std::convert::Infallible;
    use std::future::pending;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::{mpsc, oneshot};
    use tokio_rustls::TlsConnector;
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

    /// Smaller than a connection's buffer, so that frames wait there too.
    const FRAME: usize = 8 * 1024;

    /// A body without an end, which a client must read.
    struct Endless(#[expect(dead_code, reason = "dropped with the body")] oneshot::Sender<()>);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; FRAME])))))
        }
    }

    /// A server with two places for connections.
    struct LimitedServer {
        address: SocketAddr,
        /// Receives the end of the body of each `/endless`.
        bodies: mpsc::Receiver<oneshot::Receiver<()>>,
        tls: Option<TlsConnector>,
    }

    trait Stream: AsyncRead + AsyncWrite + Unpin {}
    impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

    /// Creates a key pair, and a client that trusts it.
    fn create_tls() -> (Arc<ServerConfig>, TlsConnector) {
        let names = vec!["localhost".to_owned()];
        let pair = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = pair.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(pair.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(server), TlsConnector::from(Arc::new(client)))
    }

    impl LimitedServer {
        /// Responds to `/endless` with a body without an end, and with `ok` to other paths.
        async fn start(with_tls: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (ended, bodies) = mpsc::channel(1);
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
            let (server_tls, tls) = with_tls.then(create_tls).unzip();
            let options = crate::Options {
                tls: server_tls,
                // The connection that reads is kept while the other one is waited for.
                deadline: Duration::from_secs(120),
                max_connections: 2,
                ..crate::Options::default()
            };
            let shutdown = CancellationToken::new();
            tokio::spawn(crate::serve_http(listener, options, service, shutdown));
            Self {
                address,
                bodies,
                tls,
            }
        }

        async fn connect(&self) -> io::Result<Box<dyn Stream>> {
            let stream = TcpStream::connect(self.address).await?;
            let Some(tls) = &self.tls else {
                return Ok(Box::new(stream));
            };
            let name = "localhost".try_into().unwrap();
            Ok(Box::new(tls.connect(name, stream).await?))
        }
    }

    async fn send_get(stream: &mut dyn Stream, path: &str) -> io::Result<()> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await
    }

    async fn get_ok(stream: &mut dyn Stream) -> io::Result<()> {
        send_get(stream, "/").await?;
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\nok") {
            if stream.read_buf(&mut received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Tries until the server has a place for a connection, for at most 30 s: less than the time
    /// after which a connection is closed on which nothing is read.
    async fn wait_for_place(server: &LimitedServer) {
        let attempts = async {
            loop {
                if let Ok(mut stream) = server.connect().await
                    && get_ok(&mut *stream).await.is_ok()
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let free = tokio::time::timeout(Duration::from_secs(30), attempts).await;
        assert!(free.is_ok(), "the unread connection occupies its place");
    }

    #[tokio::test]
    async fn connection_of_http1_ends_with_a_response_that_is_not_read_only() {
        for with_tls in [false, true] {
            let mut server = LimitedServer::start(with_tls).await;
            let mut reading = server.connect().await.unwrap();
            get_ok(&mut *reading).await.unwrap();
            let mut stuck = server.connect().await.unwrap();
            send_get(&mut *stuck, "/endless").await.unwrap();
            let body = server.bodies.recv().await.unwrap();
            let dropped = tokio::time::timeout(Duration::from_secs(60), body).await;
            assert!(dropped.unwrap().is_err(), "the body ends at its deadline");
            // Nothing was read from `stuck`, which is still open at this end.
            wait_for_place(&server).await;
            // The deadline of the first response has passed, too.
            get_ok(&mut *reading).await.unwrap();
            drop(stuck);
        }
    }
}
