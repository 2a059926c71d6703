//! Connections to endpoints: those of HTTP/1.1, kept for further requests, and those of HTTP/2.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use base_task::Tasks;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, timeout};

use crate::backend::Protocol;
use crate::connect::{CONNECT, ConnectError, KEEP, MAX_IDLE, MAX_IDLE_OF_ENDPOINT, connect_tcp};
use crate::http2_connections::{Http2Connections, Http2Place};
use crate::upload::{UploadBody, send_until_idle};

/// A connection to an endpoint, for one request at a time.
#[derive(Debug)]
pub(crate) enum Connection {
    /// A connection of HTTP/1.1.
    Http1(SendRequest<UploadBody>),
    /// A place on a connection of HTTP/2.
    Http2(Http2Place),
}

impl Connection {
    /// Sends a request. The error has the request if nothing of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<UploadBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<UploadBody>>> {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(place) => place.send(request).await,
        }
    }
}

/// Maximum size of a response's headers in bytes.
const MAX_HEADERS: usize = 64 * 1024;

struct Idle {
    connection: SendRequest<UploadBody>,
    since: Instant,
}

#[derive(Default)]
struct IdleConnections {
    by_endpoint: HashMap<SocketAddr, Vec<Idle>>,
    count: usize,
}

/// Connections to endpoints. Clones share them.
#[derive(Clone)]
pub(crate) struct Connections {
    idle: Arc<Mutex<IdleConnections>>,
    http2: Http2Connections,
    tasks: Tasks,
    /// Time after which a connection is closed whose endpoint does not read a request.
    unread: Duration,
}

impl Connections {
    /// Returns an empty pool; its tasks belong to `tasks`. A request that its endpoint does not
    /// read ends after `unread`.
    pub(crate) fn new(tasks: Tasks, unread: Duration) -> Self {
        Self {
            idle: Arc::default(),
            http2: Http2Connections::new(tasks.clone(), unread),
            tasks,
            unread,
        }
    }

    /// Returns a connection that is open and ready, if there is one.
    pub(crate) fn take_open(&self, endpoint: SocketAddr, protocol: Protocol) -> Option<Connection> {
        match protocol {
            Protocol::Http1 => self.take_idle(endpoint).map(Connection::Http1),
            Protocol::Http2 => self.http2.take_place(endpoint).map(Connection::Http2),
        }
    }

    fn take_idle(&self, endpoint: SocketAddr) -> Option<SendRequest<UploadBody>> {
        let mut idle = self.idle.lock();
        let mut kept = idle.by_endpoint.remove(&endpoint)?;
        let before = kept.len();
        // The most recently used one first: the others can expire.
        let mut found = None;
        while let Some(last) = kept.pop() {
            if last.connection.is_ready() && last.since.elapsed() < KEEP {
                found = Some(last.connection);
                break;
            }
        }
        idle.count -= before - kept.len();
        if !kept.is_empty() {
            idle.by_endpoint.insert(endpoint, kept);
        }
        found
    }

    /// Opens a connection.
    pub(crate) async fn connect(
        &self,
        endpoint: SocketAddr,
        protocol: Protocol,
    ) -> Result<Connection, ConnectError> {
        let stream = connect_tcp(endpoint).await?;
        if protocol == Protocol::Http2 {
            let opened = timeout(CONNECT, self.http2.open(endpoint, stream)).await;
            return opened
                .map_err(|_| ConnectError::Timeout)?
                .map(Connection::Http2);
        }
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MAX_HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let sent = send_until_idle(connection.with_upgrades(), self.unread);
        // Its error is that of the request.
        self.tasks.spawn_isolated("endpoint-connection", sent);
        Ok(Connection::Http1(sender))
    }

    /// Keeps a connection once its response has been received.
    pub(crate) fn keep(&self, endpoint: SocketAddr, connection: Connection) {
        let Connection::Http1(mut connection) = connection else {
            return;
        };
        let pool = self.clone();
        self.tasks
            .spawn_isolated("endpoint-connection", async move {
                // It becomes ready as soon as its task has read the end of the response.
                let ready = timeout(CONNECT, connection.ready()).await;
                if matches!(ready, Ok(Ok(()))) {
                    pool.insert_idle(endpoint, connection);
                }
            });
    }

    fn insert_idle(&self, endpoint: SocketAddr, connection: SendRequest<UploadBody>) {
        let mut idle = self.idle.lock();
        if idle.count >= MAX_IDLE {
            return;
        }
        let kept = idle.by_endpoint.entry(endpoint).or_default();
        if kept.len() < MAX_IDLE_OF_ENDPOINT {
            kept.push(Idle {
                connection,
                since: Instant::now(),
            });
            idle.count += 1;
        }
    }

    /// Closes expired connections, until shutdown.
    pub(crate) async fn close_expired(self) {
        let shutdown = self.tasks.shutdown().clone();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(KEEP) => {}
            }
            self.http2.close_expired();
            let mut idle = self.idle.lock();
            idle.by_endpoint.retain(|_, kept| {
                kept.retain(|idle| !idle.connection.is_closed() && idle.since.elapsed() < KEEP);
                !kept.is_empty()
            });
            idle.count = idle.by_endpoint.values().map(Vec::len).sum();
        }
    }
}
