//! Bodies of requests on their way to endpoints.
//!
//! A body occupies the place of its request until all of it is sent, also after the response and
//! after the client has closed its connection. hyper takes a part of a body and does not poll the
//! body again before the endpoint has room for the part. A limit inside of the body would never end
//! then, so that the task that sends the body watches its progress.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

use crate::idle::{BodyError, IdleBody};
use crate::places::RequestPlace;

tokio::task_local! {
    /// The watch of the task that sends a body.
    static WATCH: Arc<UploadWatch>;
}

/// The body of a request.
pub(crate) struct UploadBody {
    inner: IdleBody<Incoming>,
    progress: Arc<Progress>,
    place: Arc<RequestPlace>,
    /// Bytes that it may still have.
    rest: u64,
    /// The stream of HTTP/2 that sends it.
    stream: Option<Arc<StreamCount>>,
    is_watched: bool,
    is_read: bool,
}

/// A stream that counts for its connection of HTTP/2 until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamCount(Arc<AtomicU32>);

impl StreamCount {
    /// Counts a stream.
    pub(crate) fn add_to(streams: &Arc<AtomicU32>) -> Arc<Self> {
        streams.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self(streams.clone()))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a request's body.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<ProgressState>);

#[derive(Debug)]
struct ProgressState {
    /// Time at which a part was taken or sent last, or of the beginning.
    last: Instant,
    /// Parts that the endpoint has no room for yet.
    unsent: usize,
    has_ended: bool,
    is_too_large: bool,
    /// Task that waits until all parts are sent.
    waiting: Option<Waker>,
}

impl Default for Progress {
    fn default() -> Self {
        Self(Mutex::new(ProgressState {
            last: Instant::now(),
            unsent: 0,
            has_ended: false,
            is_too_large: false,
            waiting: None,
        }))
    }
}

impl Progress {
    /// Returns the time at which a part was taken or sent last, or of the beginning.
    pub(crate) fn last(&self) -> Instant {
        self.0.lock().last
    }

    /// Returns whether the body had more bytes than it may have.
    pub(crate) fn is_too_large(&self) -> bool {
        self.0.lock().is_too_large
    }

    /// Records progress.
    #[cfg(test)]
    pub(crate) fn record(&self) {
        self.0.lock().last = Instant::now();
    }

    fn begin_part(&self) {
        let mut state = self.0.lock();
        state.last = Instant::now();
        state.unsent += 1;
    }

    fn end_part(&self) {
        let mut state = self.0.lock();
        state.last = Instant::now();
        state.unsent = state.unsent.saturating_sub(1);
        let waiting = (state.unsent == 0).then(|| state.waiting.take());
        drop(state);
        if let Some(waiting) = waiting.flatten() {
            waiting.wake();
        }
    }

    fn end(&self) {
        self.0.lock().has_ended = true;
    }

    fn is_open(&self) -> bool {
        let state = self.0.lock();
        !state.has_ended || state.unsent > 0
    }

    /// Returns the time since which the receiver has had no room for a part.
    pub(crate) fn unsent_since(&self) -> Option<Instant> {
        let state = self.0.lock();
        (state.unsent > 0).then_some(state.last)
    }

    /// Waits until all parts are sent.
    pub(crate) fn poll_sent(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.unsent == 0 {
            return Poll::Ready(());
        }
        state.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A part of a body. Dropping it records that it was sent.
pub(crate) struct UnsentPart {
    bytes: Bytes,
    progress: Arc<Progress>,
    _place: Arc<RequestPlace>,
}

impl UnsentPart {
    /// Returns the bytes as a part that occupies the place until it is sent.
    pub(crate) fn begin(
        bytes: Bytes,
        progress: &Arc<Progress>,
        place: &Arc<RequestPlace>,
    ) -> Bytes {
        progress.begin_part();
        Bytes::from_owner(Self {
            bytes,
            progress: progress.clone(),
            _place: place.clone(),
        })
    }
}

impl AsRef<[u8]> for UnsentPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentPart {
    fn drop(&mut self) {
        self.progress.end_part();
    }
}

impl UploadBody {
    /// Limits a body to `limit` bytes. It occupies the place until it is sent.
    pub(crate) fn new(inner: IdleBody<Incoming>, limit: u64, place: Arc<RequestPlace>) -> Self {
        Self {
            inner,
            progress: Arc::default(),
            place,
            rest: limit,
            stream: None,
            is_watched: false,
            is_read: false,
        }
    }

    /// Returns its progress.
    pub(crate) fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Makes it count as a stream of a connection of HTTP/2 until it is sent.
    pub(crate) fn hold_stream(&mut self, stream: Arc<StreamCount>) {
        self.stream = Some(stream);
    }

    fn take_part(&mut self, bytes: Bytes) -> Result<Frame<Bytes>, BodyError> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some(rest) = self.rest.checked_sub(size) else {
            self.progress.0.lock().is_too_large = true;
            return Err(io::Error::other("the body is too large").into());
        };
        self.rest = rest;
        let part = UnsentPart::begin(bytes, &self.progress, &self.place);
        Ok(Frame::data(part))
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        self.progress.end();
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.is_watched {
            if WATCH.try_with(|watch| watch.begin(&self.progress)).is_err() {
                // hyper polls a body of HTTP/2 once before the body has a task of its own. A part
                // that it takes then would be watched by no task.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.is_watched = true;
        }
        if !self.is_read {
            let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(context));
            // Trailers of a request could name the client again, and are removed.
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(bytes))) => return Poll::Ready(Some(self.take_part(bytes))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(Err(_))) | None => self.is_read = true,
            }
        }
        match self.stream {
            // The task of the stream must not end before the parts are sent, as it watches them.
            Some(_) => self.progress.poll_sent(context).map(|()| None),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && (self.stream.is_none() || !self.is_watched)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body that a task sends.
#[derive(Debug, Default)]
struct UploadWatch {
    current: Mutex<Option<Arc<Progress>>>,
    has_begun: Notify,
}

impl UploadWatch {
    /// Watches this body. A task sends one after the other.
    fn begin(&self, progress: &Arc<Progress>) {
        *self.current.lock() = Some(progress.clone());
        self.has_begun.notify_one();
    }

    /// Returns once nothing of an unsent part was sent for `limit`.
    async fn wait_for_idle(&self, limit: Duration) {
        loop {
            let current = self.current.lock().clone();
            let Some(current) = current.filter(|progress| progress.is_open()) else {
                self.has_begun.notified().await;
                continue;
            };
            let (now, since) = (Instant::now(), current.unsent_since());
            // A limit that the clock can't represent is none.
            let Some(end) = since.unwrap_or(now).checked_add(limit) else {
                return std::future::pending().await;
            };
            if since.is_some() && end <= now {
                return;
            }
            sleep_until(end).await;
        }
    }
}

/// Runs a task that sends bodies of requests. Drops it after nothing of a body that it has taken
/// was sent for `limit`.
pub(crate) async fn send_until_idle(task: impl Future, limit: Duration) {
    let watch = Arc::new(UploadWatch::default());
    tokio::select! {
        biased;
        _ = WATCH.scope(watch.clone(), task) => {}
        () = watch.wait_for_idle(limit) => {
            tracing::debug!("the endpoint does not read the body of a request");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::time::{sleep, timeout};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn task_ends_only_if_a_part_that_it_has_taken_is_not_sent() {
        // The numbers of parts that are taken and sent, one each 50 s.
        for (taken, sent, end) in [
            (0, 0, None),
            (1, 0, Some(60)),
            (5, 5, None),
            (5, 4, Some(260)),
        ] {
            let progress = Arc::new(Progress::default());
            let task = async {
                WATCH.with(|watch| watch.begin(&progress));
                (0..taken).for_each(|_| progress.begin_part());
                for _ in 0..sent {
                    sleep(Duration::from_secs(50)).await;
                    progress.end_part();
                }
                pending::<()>().await;
            };
            let began = Instant::now();
            let ended = timeout(Duration::from_secs(3600), send_until_idle(task, LIMIT)).await;
            let ended = ended.is_ok().then(|| began.elapsed().as_secs());
            assert_eq!(ended, end, "{taken} {sent}");
        }
    }
}
