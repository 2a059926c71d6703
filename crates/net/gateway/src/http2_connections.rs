//! Connections to endpoints that speak HTTP/2 without TLS, which requests share.
//!
//! Each request has a window of its own, and a connection has no more requests than its window has
//! room for: a client that does not read its response stops no other one. The endpoint's limit of
//! concurrent streams is kept, too: beyond it, requests would wait for the end of others.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use base_task::Tasks;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};

use crate::connect::{ConnectError, KEEP, MAX_IDLE, MAX_IDLE_OF_ENDPOINT};
use crate::upload::{StreamCount, UploadBody, send_until_idle};

/// Maximum number of requests that share a connection.
const MAX_REQUESTS: u32 = 100;
/// Bytes of a response that an endpoint may send ahead of its client.
const WINDOW: u32 = 64 * 1024;
/// Bytes of a request that wait for the endpoint's connection.
const SEND_BUFFER: usize = 64 * 1024;
/// Maximum size of a response's headers in bytes.
const MAX_HEADERS: u32 = 64 * 1024;
/// Interval of pings while requests are open. An endpoint that vanished answers none.
const PING: Duration = Duration::from_secs(30);
/// Time for the answer to a ping. An endpoint may pause, as for its garbage collection.
const PONG: Duration = Duration::from_secs(15);

type ConnectionsByEndpoint = HashMap<SocketAddr, Vec<SharedConnection>>;
type Http2Connection = http2::Connection<TokioIo<TcpStream>, UploadBody, TaskExecutor>;

/// A connection with the number of its requests.
#[derive(Debug)]
struct SharedConnection {
    sender: SendRequest<UploadBody>,
    /// Its task owns it.
    connection: Weak<Mutex<Http2Connection>>,
    requests: Arc<AtomicU32>,
    used: Instant,
}

impl SharedConnection {
    /// Returns whether the endpoint takes one more request.
    fn has_place(&self) -> bool {
        let connection = self.connection.upgrade();
        let streams = connection.map_or(0, |found| found.lock().current_max_send_streams());
        let requests = self.requests.load(Ordering::Relaxed);
        requests < MAX_REQUESTS && usize::try_from(requests).is_ok_and(|open| open < streams)
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// Returns whether no request can use the connection. An endpoint that takes no request of an
    /// idle connection must not have a further one for each request.
    fn is_unusable(&self) -> bool {
        self.sender.is_closed() || (self.is_idle() && !self.has_place())
    }

    fn take_place(&self) -> Http2Place {
        Http2Place {
            sender: self.sender.clone(),
            stream: StreamCount::add_to(&self.requests),
        }
    }
}

/// A place for one request on a shared connection, until it and the body of its request are
/// dropped.
#[derive(Debug)]
pub(crate) struct Http2Place {
    sender: SendRequest<UploadBody>,
    stream: Arc<StreamCount>,
}

impl Http2Place {
    /// Sends a request. The error has the request if nothing of it was sent.
    pub(crate) async fn send(
        &mut self,
        mut request: Request<UploadBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UploadBody>>> {
        request.body_mut().hold_stream(self.stream.clone());
        self.sender.try_send_request(request).await
    }
}

/// Runs the bodies of requests.
#[derive(Clone)]
struct TaskExecutor {
    tasks: Tasks,
    unread: Duration,
}

impl<F> Executor<F> for TaskExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, body: F) {
        let sent = send_until_idle(body, self.unread);
        self.tasks.spawn_isolated("endpoint-stream", sent);
    }
}

/// Connections of HTTP/2. Clones share them.
#[derive(Clone)]
pub(crate) struct Http2Connections {
    by_endpoint: Arc<Mutex<ConnectionsByEndpoint>>,
    executor: TaskExecutor,
}

impl Http2Connections {
    /// Returns an empty pool; its tasks belong to `tasks`. A request that its endpoint does not
    /// read is reset after `unread`.
    pub(crate) fn new(tasks: Tasks, unread: Duration) -> Self {
        Self {
            by_endpoint: Arc::default(),
            executor: TaskExecutor { tasks, unread },
        }
    }

    /// Returns a place on an open connection, if there is one.
    pub(crate) fn take_place(&self, endpoint: SocketAddr) -> Option<Http2Place> {
        let mut by_endpoint = self.by_endpoint.lock();
        let shared = by_endpoint.get_mut(&endpoint)?;
        shared.retain(|found| !found.is_unusable());
        let mut open = shared.iter_mut();
        let found = open.find(|found| found.has_place())?;
        found.used = Instant::now();
        Some(found.take_place())
    }

    /// Begins HTTP/2 on a new connection, and returns a place on it.
    pub(crate) async fn open(
        &self,
        endpoint: SocketAddr,
        stream: TcpStream,
    ) -> Result<Http2Place, ConnectError> {
        let mut builder = http2::Builder::new(self.executor.clone());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * MAX_REQUESTS)
            .max_header_list_size(MAX_HEADERS)
            .max_send_buf_size(SEND_BUFFER)
            // Until the endpoint's settings arrive.
            .initial_max_send_streams(1)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let connection = Arc::new(Mutex::new(connection));
        let shared = SharedConnection {
            sender,
            connection: Arc::downgrade(&connection),
            requests: Arc::default(),
            used: Instant::now(),
        };
        let tasks = &self.executor.tasks;
        tasks.spawn_isolated("endpoint-connection", async move {
            // Its error is that of its requests.
            let _ = poll_fn(|context| Pin::new(&mut *connection.lock()).poll(context)).await;
        });
        let place = shared.take_place();
        let mut by_endpoint = self.by_endpoint.lock();
        by_endpoint.entry(endpoint).or_default().push(shared);
        limit_idle(&mut by_endpoint, endpoint);
        Ok(place)
    }

    /// Closes connections that are closed by the endpoint or have had no request for a while.
    pub(crate) fn close_expired(&self) {
        self.by_endpoint.lock().retain(|_, shared| {
            shared.retain(|found| {
                !found.is_unusable() && (!found.is_idle() || found.used.elapsed() < KEEP)
            });
            !shared.is_empty()
        });
    }
}

/// Closes idle connections of an endpoint, and of all, beyond their limits: those that were used
/// first. Each new connection does this, so that idle ones are never many more.
fn limit_idle(by_endpoint: &mut ConnectionsByEndpoint, endpoint: SocketAddr) {
    if let Some(shared) = by_endpoint.get_mut(&endpoint)
        && let Some(last) = find_last_closed(shared.iter(), MAX_IDLE_OF_ENDPOINT)
    {
        shared.retain(|found| !found.is_idle() || found.used > last);
    }
    // Counted first, because most often they are few.
    if by_endpoint.values().map(Vec::len).sum::<usize>() <= MAX_IDLE {
        return;
    }
    if let Some(last) = find_last_closed(by_endpoint.values().flatten(), MAX_IDLE) {
        by_endpoint.retain(|_, shared| {
            shared.retain(|found| !found.is_idle() || found.used > last);
            !shared.is_empty()
        });
    }
}

/// Returns the last use of the connections to close, so that no more than `limit` idle ones
/// remain; `None` if no more exist.
fn find_last_closed<'a>(
    connections: impl Iterator<Item = &'a SharedConnection>,
    limit: usize,
) -> Option<Instant> {
    let idle = connections.filter(|found| found.is_idle());
    let mut used: Vec<Instant> = idle.map(|found| found.used).collect();
    let last = used.len().checked_sub(limit + 1)?;
    Some(*used.select_nth_unstable(last).1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_task::CancellationToken;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn idle_connections_to_an_endpoint_are_limited_and_used_ones_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap();
        let tasks = Tasks::new(CancellationToken::new());
        let pool = Http2Connections::new(tasks, Duration::from_secs(60));
        let (mut accepted, mut used) = (Vec::new(), Vec::new());
        for number in 0..MAX_IDLE_OF_ENDPOINT + 10 {
            let stream = TcpStream::connect(endpoint).await.unwrap();
            accepted.push(listener.accept().await.unwrap());
            let place = pool.open(endpoint, stream).await.unwrap();
            if number < 3 {
                used.push(place);
            }
        }
        // The last one was used when it was counted.
        let count = pool.by_endpoint.lock()[&endpoint].len();
        assert_eq!(count, used.len() + MAX_IDLE_OF_ENDPOINT + 1);
    }
}
