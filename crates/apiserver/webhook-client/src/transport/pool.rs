//! The connections to one server.

use super::call::{Call, Reply, SendError};
use super::connector::Route;
use super::http1::Http1;
use super::http2::Http2;
use base_task::Tasks;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which an idle connection is kept, as Go's default transport.
const IDLE: Duration = Duration::from_secs(90);

/// Sends requests to one server on connections that it keeps.
pub struct Pool {
    route: Route,
    tasks: Tasks,
    max_idle: usize,
    kept: Arc<Mutex<Kept>>,
    /// Held while a connection that may be shared is opened, so that webhooks that are called at
    /// once open one.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    /// The last one was used last.
    idle: Vec<(Instant, Http1)>,
    shared: Option<(Instant, Http2)>,
    /// A task closes the connections that are idle for long.
    is_swept: bool,
}

impl Pool {
    /// Creates a pool without connections, which keeps so many idle ones.
    pub fn new(route: Route, tasks: Tasks, max_idle: usize) -> Self {
        Pool {
            route,
            tasks,
            max_idle,
            kept: Arc::default(),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// Sends a request and returns its response. A connection that the server has closed is
    /// replaced.
    ///
    /// # Errors
    /// No connection, or no complete response.
    pub async fn send(&self, call: &Call<'_>) -> Result<Reply, SendError> {
        if let Some(connection) = self.find_shared() {
            match connection.send(call).await {
                // Only an unsent request is repeated: the webhook may have received any other, and
                // may have side effects.
                Err(SendError::Unsent) => self.kept.lock().shared = None,
                done => return done,
            }
        }
        // After a restart of the webhook, all idle connections are closed.
        while let Some(connection) = self.take_idle() {
            match self.send_on(connection, call).await {
                Err(SendError::Unsent) => {}
                done => return done,
            }
        }
        let mut opening = None;
        if self.route.offers_http2() {
            // A second look under the lock: another request may have opened the connection
            // meanwhile.
            opening = Some(self.opening.lock().await);
            if let Some(connection) = self.find_shared() {
                drop(opening);
                return connection.send(call).await;
            }
        }
        let stream = self.route.connect().await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let connection = Http2::new(stream, &self.tasks).await?;
            self.share(connection.clone());
            drop(opening);
            return connection.send(call).await;
        }
        // The server has chosen HTTP/1.1: connections are not shared, so that the next request
        // opens its own at once.
        drop(opening);
        self.send_on(Http1::new(stream).await?, call).await
    }

    async fn send_on(&self, mut connection: Http1, call: &Call<'_>) -> Result<Reply, SendError> {
        let (done, is_reusable) = connection.send(call).await;
        if is_reusable {
            self.keep(connection);
        }
        done
    }

    fn find_shared(&self) -> Option<Http2> {
        let mut kept = self.kept.lock();
        let (used, connection) = kept.shared.as_mut()?;
        *used = Instant::now();
        Some(connection.clone())
    }

    /// Takes the connection that was used last: the server has closed it least likely.
    fn take_idle(&self) -> Option<Http1> {
        self.kept
            .lock()
            .idle
            .pop()
            .map(|(_, connection)| connection)
    }

    fn share(&self, connection: Http2) {
        let mut kept = self.kept.lock();
        kept.shared = Some((Instant::now(), connection));
        self.sweep(&mut kept);
    }

    fn keep(&self, connection: Http1) {
        let mut kept = self.kept.lock();
        if kept.idle.len() < self.max_idle {
            kept.idle.push((Instant::now(), connection));
            self.sweep(&mut kept);
        }
    }

    /// Starts the task that closes idle connections, unless it runs.
    fn sweep(&self, kept: &mut Kept) {
        if std::mem::replace(&mut kept.is_swept, true) {
            return;
        }
        // Weak: the task must not keep the connections of a dropped client open.
        let (kept, stopped) = (Arc::downgrade(&self.kept), self.tasks.shutdown().clone());
        self.tasks
            .spawn_isolated("idle webhook connections", async move {
                stopped.run_until_cancelled(close_idle(kept)).await;
            });
    }
}

/// Closes connections that are idle for long, until none is left or the pool is dropped.
async fn close_idle(kept: Weak<Mutex<Kept>>) {
    loop {
        // Half of the time, so that a connection outlives its limit by no more than that.
        tokio::time::sleep(IDLE / 2).await;
        let Some(kept) = kept.upgrade() else {
            return;
        };
        let mut kept = kept.lock();
        let is_fresh = |used: &Instant| used.elapsed() < IDLE;
        kept.idle.retain(|(used, _)| is_fresh(used));
        kept.shared.take_if(|(used, _)| !is_fresh(used));
        if kept.idle.is_empty() && kept.shared.is_none() {
            kept.is_swept = false;
            return;
        }
    }
}
